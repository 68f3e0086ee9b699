// A provider in Go, by the clients that protoc makes of protos/registry.proto and protos/device_registry.proto: it
// registers a device's attributes, lists what is registered, sees the node's devices, and takes back what it said; then
// it registers in the form that the service had first. Built and run by test_registry_client_in_go.py.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	first "netdra/client/first"
	quantity "netdra/client/quantity"
	registry "netdra/client/registry"
)

func main() {
	connection, err := grpc.NewClient("unix:"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := registry.NewDeviceRegistryClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	register := func(text string) (*registry.RegisterAttributesResponse, error) {
		return client.RegisterAttributes(ctx, &registry.RegisterAttributesRequest{
			Device:     proto.String("eth7"),
			Provider:   proto.String("golang"),
			Attributes: map[string]*registry.DeviceAttribute{"text": {String_: proto.String(text)}},
			Capacity:   map[string]*registry.DeviceCapacity{"bandwidth": {Value: proto.String("4096")}},
			TtlSeconds: proto.Uint32(60),
		})
	}
	answer, err := register("x")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("registered:", answer.Success)
	_, err = register(string(make([]byte, 65)))
	for _, detail := range status.Convert(err).Details() {
		fmt.Println("refused:", status.Code(err), detail.(*errdetails.ErrorInfo).Reason)
	}
	err = connection.Invoke(ctx, "/x.Y/Z", &registry.WatchDevicesRequest{}, &registry.DeregisterResponse{})
	fmt.Println("unknown:", status.Code(err))

	list := func() {
		listed, err := client.ListRegistrations(ctx, &registry.ListRegistrationsRequest{})
		if err != nil {
			log.Fatal(err)
		}
		for _, each := range listed.Registrations {
			fmt.Println("listed:", each.Provider, each.Device, each.Capacity["bandwidth"].GetValue())
		}
	}
	takeBack := func(provider string) {
		taken, err := client.Deregister(ctx, &registry.DeregisterRequest{Provider: proto.String(provider)})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("taken back:", taken.Success)
	}
	list()
	stream, err := client.WatchDevices(ctx, &registry.WatchDevicesRequest{})
	if err != nil {
		log.Fatal(err)
	}
	devices, err := stream.Recv()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("devices:", devices.Devices[0].Pool, devices.Devices[0].Name)
	takeBack("golang")

	former := first.NewDeviceRegistryClient(connection)
	say := func(amount string) *first.RegisterAttributesResponse {
		answer, err := former.RegisterAttributes(ctx, &first.RegisterAttributesRequest{
			Device:     proto.String("eth7"),
			Provider:   proto.String("first"),
			Attributes: map[string]*first.DeviceAttribute{"rdma": {Bool: proto.Bool(true)}},
			Capacity: map[string]*first.DeviceCapacity{
				"bandwidth": {Value: &quantity.Quantity{String_: proto.String(amount)}},
			},
		})
		if err != nil {
			log.Fatal(err)
		}
		return answer
	}
	fmt.Println("registered in the first form:", say("4Ki").Success)
	wrong := say("much")
	fmt.Printf("refused in the first form: %t, with a message: %t\n", wrong.Success, wrong.Message != "")
	list()
	takeBack("first")
}
