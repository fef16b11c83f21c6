"""A FastAPI app that takes in letters over HTTP and sends them in the background, in the same
process.

    pip install '/path/to/milepost/packages/milepost[http]' fastapi
    uvicorn examples.fastapi_app:app

    curl -X POST localhost:8000/letters -H 'content-type: application/json' -d '{"id": "L-1", "to": "door 4"}'
    curl localhost:8000/letters/L-1

The work begins with the app and ends with it: on SIGTERM uvicorn finishes its requests, then leaves
the lifespan. That stops and drains the work before the ledger is closed: running handlers have 30
seconds to finish, everything else is given back. Nothing is lost if the process is killed instead.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request

import milepost as mp

letters = mp.Route("letters", key="id")


@letters.stage("send", concurrency=8)
async def send(item: mp.Item) -> mp.Outcome:
    await asyncio.sleep(0.01)  # a partner's API
    return mp.Done({"sent_to": item.input["to"]})


@letters.stage("file")
def file(item: mp.Item) -> mp.Outcome:
    return mp.Done()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    ledger = os.environ.get("MILEPOST_LEDGER", "sqlite:///letters.db")
    async with mp.open(ledger, routes=[letters], grace="30s") as post:
        post.start()
        app.state.post = post
        yield
        await post.stop_async()
        print("letters:", post.status()["routes"]["letters"]["statuses"], flush=True)


app = FastAPI(lifespan=lifespan)


# Plain functions: FastAPI runs them in threads, where a call of the ledger holds up no other
# request.
@app.post("/letters", status_code=202)
def submit(letter: dict[str, Any], request: Request) -> dict[str, Any]:
    [receipt] = request.app.state.post.submit("letters", letter)
    if receipt.answer == "malformed":
        raise HTTPException(422, receipt.error)
    return {"key": receipt.key, "answer": receipt.answer}


@app.get("/letters/{key}")
def show(key: str, request: Request) -> dict[str, Any]:
    story = request.app.state.post.show("letters", key)
    if story is None:
        raise HTTPException(404, f"there is no letter {key}")
    return {"status": story["status"], "results": story["results"]}
