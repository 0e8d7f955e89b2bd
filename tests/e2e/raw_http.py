"""For test scripts: HTTP by hand, to send what a client library would not."""
import re
import socket
import struct


def connect(port, small_window=False):
    s = socket.socket()
    if small_window:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.settimeout(60)
    s.connect(("127.0.0.1", port))
    return s


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def head(path, key, length, more=""):
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n{more}\r\n").encode()


def read_reply(s):
    """Status and body of one reply; (0, …) when the server closed without one."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = s.recv(65536)
        if not part:
            return 0, data
        data += part
    top, body = data.split(b"\r\n\r\n", 1)
    status = int(top.split()[1])
    length = re.search(rb"content-length: (\d+)", top, re.I)
    if length:
        while len(body) < int(length[1]):
            part = s.recv(65536)
            if not part:
                break
            body += part
        return status, body[:int(length[1])]
    while not body.endswith(b"0\r\n\r\n"):
        part = s.recv(65536)
        if not part:
            return 0, body
        body += part
    return status, body


def get(port, path):
    with connect(port) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        return read_reply(s)
