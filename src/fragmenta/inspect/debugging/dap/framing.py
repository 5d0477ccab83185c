"""Messages of the Debug Adapter Protocol on a stream: a header, then JSON."""

from __future__ import annotations

import json
from typing import IO, Any

from fragmenta.errors import BadFile, shortened

MOST_BYTES = 1 << 24
"""The longest message that is read."""
_LONGEST_LINE = 1024
_MOST_LINES = 16

Message = dict[str, Any]


def read(stream: IO[bytes]) -> Message | None:
    """The next message; None at the end of the stream.

    >>> import io
    >>> read(io.BytesIO(framed({"seq": 1, "type": "request", "command": "threads"})))
    {'seq': 1, 'type': 'request', 'command': 'threads'}
    """
    length = None
    for _ in range(_MOST_LINES):
        line = stream.readline(_LONGEST_LINE)
        if not line:
            return None
        name, _, value = line.decode("ascii", "replace").partition(":")
        if not line.strip():
            break
        if name.strip().lower() == "content-length":
            length = _length(value.strip())
    if length is None:
        raise BadFile("a message begins with Content-Length: N and an empty line")
    content = stream.read(length)
    if len(content) < length:
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as why:
        raise BadFile(f"a message is not JSON: {why}") from None
    if not isinstance(found, dict):
        raise BadFile(f"a message is a JSON object; given {type(found).__name__}")
    return found


def _length(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:12]) > MOST_BYTES:
        raise BadFile(
            f"Content-Length is a number up to {MOST_BYTES:,}; given "
            f"{shortened(text, 20)}"
        )
    return int(text)


def framed(message: Message) -> bytes:
    r"""A message as it is written.

    >>> framed({"seq": 1})
    b'Content-Length: 10\r\n\r\n{"seq": 1}'
    """
    content = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(content), content)
