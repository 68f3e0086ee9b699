"""The services as foreign clients find them, by grpcio and by frames: statuses, health, reflection, the first form."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message
from grpclib.health.v1 import health_pb2 as health
from grpclib.reflection.v1 import reflection_pb2 as v1
from grpclib.reflection.v1alpha import reflection_pb2 as v1alpha
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, TrailersReceived

from netdra.node.registry.service import SERVICE, SERVICES
from netdra.node.registry.shares import RegistryLimits
from netdra.node.wire import device_registry_pb2 as first
from netdra.node.wire import registry_pb2 as wire
from netdra.node.wire.quantity_pb2 import Quantity
from tests.unit.node.kubelet.caller import run
from tests.unit.node.registry.scene import Scene, refused_reason, serving

FIRST = "/DeviceRegistry/RegisterAttributes"
FORMS: dict[str, Any] = {"v1": v1, "v1alpha": v1alpha}


def tell(folder: Path, story: Callable[[Scene], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def told() -> None:
        async with serving(folder, **options) as scene:
            await story(scene)

    run(told)


def method(scene: Scene, path: str, answer: type[Message]) -> Any:
    return scene.channel.unary_unary(
        path, request_serializer=lambda message: message.SerializeToString(), response_deserializer=answer.FromString
    )


class TestRefusals:
    @pytest.mark.parametrize(
        ("said", "code", "reason"),
        [
            ({"provider": "k8s.io"}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),
            ({"provider": "theirs"}, grpc.StatusCode.PERMISSION_DENIED, "NOT_OWNER"),
            ({"device": "eth9"}, grpc.StatusCode.RESOURCE_EXHAUSTED, "FULL"),
        ],
    )
    def test_they_have_a_status_and_a_reason_for_programs(
        self, folder: Path, said: dict[str, Any], code: grpc.StatusCode, reason: str
    ) -> None:
        async def story(scene: Scene) -> None:
            await scene.register(provider="theirs", token="a")
            await scene.register()
            fact = {"a": wire.DeviceAttribute(int=1)}
            request = wire.RegisterAttributesRequest(device="eth7", provider="bctl", attributes=fact)
            request.MergeFrom(wire.RegisterAttributesRequest(**said))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(scene, f"{SERVICE}/RegisterAttributes", wire.RegisterAttributesResponse)(request)
            assert (refused.value.code(), refused_reason(refused.value)) == (code, reason)

        tell(folder, story, limits=RegistryLimits(of_provider=1))

    def test_a_token_that_cannot_be_checked_may_be_tried_again(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            call = method(scene, f"{SERVICE}/Deregister", wire.DeregisterResponse)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(wire.DeregisterRequest(provider="x"), metadata=(("authorization", "Bearer away"),))
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert refused_reason(refused.value) == "UNAVAILABLE"

        tell(folder, story)

    @pytest.mark.parametrize("path", [f"{SERVICE}/Nothing", "/x.Y/Z", "/DeviceRegistry/Deregister"])
    def test_unserved_methods_answer_unimplemented(self, folder: Path, path: str) -> None:
        async def story(scene: Scene) -> None:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(scene, path, wire.DeregisterResponse)(wire.DeregisterRequest())
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            headers, _, trailers = await frames(scene, path, b"")
            assert headers["content-type"].startswith("application/grpc")
            assert {**headers, **trailers}["grpc-status"] == "12"

        tell(folder, story)


class TestHealth:
    def test_both_services_serve_and_others_are_not_found(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            check = method(scene, "/grpc.health.v1.Health/Check", health.HealthCheckResponse)
            for service in ("", *(each.full_name for each in SERVICES)):
                assert (await check(health.HealthCheckRequest(service=service))).status == 1
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await check(health.HealthCheckRequest(service="x"))
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            watch: Any = scene.channel.unary_stream(
                "/grpc.health.v1.Health/Watch",
                request_serializer=health.HealthCheckRequest.SerializeToString,
                response_deserializer=health.HealthCheckResponse.FromString,
            )
            assert (await anext(aiter(watch(health.HealthCheckRequest())))).status == 1

        tell(folder, story)


class TestReflection:
    @pytest.mark.parametrize("form", FORMS)
    def test_reflection_describes_every_service_with_all_its_dependencies(self, folder: Path, form: str) -> None:
        messages = FORMS[form]

        async def ask(scene: Scene, requests: Sequence[Any]) -> list[Any]:
            talk: Any = scene.channel.stream_stream(
                f"/grpc.reflection.{form}.ServerReflection/ServerReflectionInfo",
                request_serializer=messages.ServerReflectionRequest.SerializeToString,
                response_deserializer=messages.ServerReflectionResponse.FromString,
            )
            return [answer async for answer in talk(iter(requests))]

        async def story(scene: Scene) -> None:
            request = messages.ServerReflectionRequest
            (listed,) = await ask(scene, [request(list_services="")])
            services = {each.name for each in listed.list_services_response.service}
            assert {path.split("/")[1] for path in scene.registry.methods} == services
            answers = await ask(scene, [request(file_containing_symbol=name) for name in sorted(services)])
            files: dict[str, FileDescriptorProto] = {}
            for answer in answers:
                (text,) = answer.file_descriptor_response.file_descriptor_proto
                file = FileDescriptorProto.FromString(text)
                files[file.name] = file
            missing = {name for file in files.values() for name in file.dependency} - files.keys()
            for answer in await ask(scene, [request(file_by_filename=name) for name in sorted(missing)]):
                assert answer.file_descriptor_response.file_descriptor_proto
            (unknown,) = await ask(scene, [request(file_containing_symbol="x.Y")])
            assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]

        tell(folder, story)


def first_request(**more: Any) -> first.RegisterAttributesRequest:
    span = first.CapacityRequestPolicyRange(min=Quantity(string="1"), step=Quantity(string="1"))
    policy = first.CapacityRequestPolicy(default=Quantity(string="2"), valid_range=span)
    request = first.RegisterAttributesRequest(
        device="eth7",
        provider="bctl",
        attributes={"rdma": first.DeviceAttribute(bool=True)},
        capacity={"bandwidth": first.DeviceCapacity(value=Quantity(string="4096"), request_policy=policy)},
    )
    request.MergeFrom(first.RegisterAttributesRequest(**more))
    return request


class TestFirstForm:
    def test_it_is_the_same_registry(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            call = method(scene, FIRST, first.RegisterAttributesResponse)
            answer = await call(first_request())
            assert (answer.success, answer.message) == (True, "it holds for 86400 s; register again before")
            (listed,) = await scene.listed()
            assert listed.capacity["bandwidth"].value == "4096"
            assert listed.capacity["bandwidth"].request_policy == wire.CapacityRequestPolicy(
                default="2", valid_range=wire.CapacityRequestPolicyRange(min="1", step="1")
            )
            assert listed.attributes["rdma"].bool
            answer = await call(first_request(provider="k8s.io"))
            assert (answer.success, "is reserved" in answer.message) == (False, True)

        tell(folder, story)

    def test_a_program_that_writes_frames_by_hand_is_understood(self, folder: Path) -> None:
        """The bytes by the field numbers: device 1, provider 2, attributes 3, capacity 4; an amount is a message."""

        def field(number: int, content: bytes) -> bytes:
            return bytes([number << 3 | 2, len(content)]) + content

        attribute = field(3, field(1, b"rdma") + field(2, b"\x18\x01"))
        capacity = field(4, field(1, b"bandwidth") + field(2, field(1, field(1, b"4096"))))
        text = field(1, b"eth7") + field(2, b"bctl") + attribute + capacity

        async def story(scene: Scene) -> None:
            headers, data, trailers = await frames(scene, FIRST, text)
            assert headers[":status"] == "200"
            assert trailers["grpc-status"] == "0"
            assert data[5:7] == b"\x08\x01", "success, field 1"
            (listed,) = await scene.listed()
            assert (listed.device, listed.provider, listed.capacity["bandwidth"].value) == ("eth7", "bctl", "4096")

        tell(folder, story)


async def frames(scene: Scene, path: str, text: bytes) -> tuple[dict[str, str], bytes, dict[str, str]]:
    """A call by HTTP/2 alone: the headers, the data and the trailers of its answer."""
    client = H2Connection()
    client.initiate_connection()
    names = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
    client.send_headers(1, [*names, ("te", "trailers"), ("content-type", "application/grpc")])
    client.send_data(1, struct.pack(">?I", False, len(text)) + text, end_stream=True)
    reader, writer = await asyncio.open_unix_connection(str(scene.path))
    writer.write(client.data_to_send())
    headers, trailers, data, ended = dict[str, str](), dict[str, str](), b"", False
    while not ended:
        for event in client.receive_data(await asyncio.wait_for(reader.read(1 << 16), 20)):
            if isinstance(event, ResponseReceived | TrailersReceived):
                into = headers if isinstance(event, ResponseReceived) else trailers
                into |= {_text(name): _text(value) for name, value in event.headers or ()}
            elif isinstance(event, DataReceived):
                data += event.data
            ended = ended or isinstance(event, StreamEnded)
    writer.close()
    return headers, data, trailers


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
