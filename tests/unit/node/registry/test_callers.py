"""The API server is asked about tokens by few calls at one time, and once about each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from netdra.kube.resources import TokenReview, TokenReviewStatus, TokenUser
from netdra.node.registry.callers import AUDIENCE, MAX_REVIEWS, Callers
from netdra.node.registry.connections import Caller
from netdra.node.registry.shares import RefusedRegistrationError

NODE_NAME = "authentication.kubernetes.io/node-name"


class Reviews:
    """An API server that takes its time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = self.most = 0

    async def create(self, _: object, review: TokenReview) -> TokenReview:
        self.asked.append(review.spec.token)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.05 if review.spec.token == "pod-9" else 0.001)
        self.open -= 1
        bound = {"pod-unbound": (), "pod-elsewhere": ("m",)}.get(review.spec.token, ("n",))
        user = TokenUser(
            username=f"system:serviceaccount:ns:{review.spec.token}", extra={NODE_NAME: bound} if bound else {}
        )
        status = TokenReviewStatus(authenticated=True, audiences=(AUDIENCE,), user=user)
        return TokenReview(spec=review.spec, status=status)


def test_however_many_callers_come_at_once_few_reviews_run_and_each_token_is_reviewed_once() -> None:
    async def work() -> None:
        reviews: Any = Reviews()
        callers = Callers(reviews, "n", tokens_only=True)
        tokens = [f"pod-{number % 20}" for number in range(100)]
        owners = await asyncio.gather(*(callers.owner(Caller(pid=1, uid=0, gid=0, token=token)) for token in tokens))
        assert owners == [f"system:serviceaccount:ns:{token}" for token in tokens]
        assert sorted(reviews.asked) == sorted(set(tokens))
        assert reviews.most == MAX_REVIEWS

    asyncio.run(work())


@pytest.mark.parametrize(("token", "rule"), [("pod-unbound", "not bound to a pod"), ("pod-elsewhere", "node m")])
def test_a_token_that_is_not_of_a_pod_on_this_node_is_rejected(token: str, rule: str) -> None:
    reviews: Any = Reviews()
    with pytest.raises(RefusedRegistrationError, match=rule):
        asyncio.run(Callers(reviews, "n", tokens_only=False).owner(Caller(pid=1, uid=0, gid=0, token=token)))
