# SPDX-License-Identifier: Apache-2.0
"""A small schema-driven protobuf codec without dependencies.

A schema is {field_number: (name, kind)}.  kind is one of
  'str' 'bytes' 'u' (uint/enum/bool varint) 'i' (signed int32/int64 varint)
  ('msg', schema) ('rep', kind) ('map', kind)   # map<string, kind>
Decoding keeps unknown fields under the key '_unknown'.
"""


def enc_varint(n):
    if n < 0:
        n += 1 << 64
    out = bytearray()
    while True:
        b = n & 0x7F
        n >>= 7
        out.append(b | (0x80 if n else 0))
        if not n:
            return bytes(out)


def dec_varint(buf, off):
    shift = val = 0
    while True:
        b = buf[off]
        off += 1
        val |= (b & 0x7F) << shift
        if not b & 0x80:
            return val, off
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def _tag(num, wt):
    return enc_varint(num << 3 | wt)


def _ld(num, data):
    return _tag(num, 2) + enc_varint(len(data)) + data


def _enc_one(num, kind, v):
    if kind in ("u", "i"):
        return _tag(num, 0) + enc_varint(int(v))
    if kind == "str":
        return _ld(num, v.encode() if isinstance(v, str) else v)
    if kind == "bytes":
        return _ld(num, v)
    if kind[0] == "msg":
        return _ld(num, encode(kind[1], v))
    raise ValueError(kind)


def encode(schema, obj):
    byname = {name: (num, kind) for num, (name, kind) in schema.items()}
    out = b""
    for name in sorted(obj, key=lambda n: byname[n][0]):
        num, kind = byname[name]
        v = obj[name]
        if v is None:
            continue
        if kind[0] == "rep":
            for x in v:
                out += _enc_one(num, kind[1], x)
        elif kind[0] == "map":
            for k in sorted(v):
                out += _ld(num, _enc_one(1, "str", k) + _enc_one(2, kind[1], v[k]))
        elif kind in ("u", "i", "str", "bytes") and not v:
            continue  # proto3 default: not on the wire
        else:
            out += _enc_one(num, kind, v)
    return out


def _dec_scalar(kind, wt, raw):
    if kind == "u":
        return raw
    if kind == "i":
        return raw - (1 << 64) if raw >> 63 else raw
    if kind == "str":
        return raw.decode("utf-8", "replace")
    if kind == "bytes":
        return bytes(raw)
    if kind[0] == "msg":
        return decode(kind[1], raw)
    raise ValueError(kind)


def decode(schema, buf):
    obj, off = {}, 0
    while off < len(buf):
        key, off = dec_varint(buf, off)
        num, wt = key >> 3, key & 7
        if wt == 0:
            raw, off = dec_varint(buf, off)
        elif wt == 2:
            ln, off = dec_varint(buf, off)
            raw = bytes(buf[off:off + ln])
            if len(raw) != ln:
                raise ValueError("truncated field %d" % num)
            off += ln
        elif wt == 5:
            raw, off = buf[off:off + 4], off + 4
        elif wt == 1:
            raw, off = buf[off:off + 8], off + 8
        else:
            raise ValueError("wire type %d" % wt)
        if num not in schema:
            obj.setdefault("_unknown", []).append((num, wt, raw if isinstance(raw, int) else raw.hex()))
            continue
        name, kind = schema[num]
        if kind[0] == "rep":
            obj.setdefault(name, []).append(_dec_scalar(kind[1], wt, raw))
        elif kind[0] == "map":
            ent = decode({1: ("k", "str"), 2: ("v", kind[1])}, raw)
            obj.setdefault(name, {})[ent.get("k", "")] = ent.get("v", "")
        else:
            obj[name] = _dec_scalar(kind, wt, raw)
    return obj
