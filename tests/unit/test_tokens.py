"""Supabase users' tokens: who is let in, and every way to forge one."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any
from uuid import uuid4

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from almagest.problems import Problem
from almagest.settings import Settings
from almagest.tokens import TokenVerifier
from tests.edge import FakeRpc, event, runtime, send

URL = "https://project.supabase.co"
USER = str(uuid4())
SECRET = "a legacy secret that is long enough for its hash"
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


def published() -> dict[str, Any]:
    return {
        "keys": [
            {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key())), "kid": "ec"},
            {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key())), "kid": "rsa"},
            {"kty": "oct", "k": base64.urlsafe_b64encode(b"shared" * 8).decode(), "kid": "oct"},
            {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "okp"},
            {"kty": "EC"},
        ]
    }


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {
        "sub": USER, "aud": "authenticated", "iss": f"{URL}/auth/v1", "exp": now + 600, "iat": now,
        "role": "authenticated", **changes,
    }  # fmt: skip
    return {name: value for name, value in made.items() if value is not None}


def token(key: Any = EC_KEY, algorithm: str = "ES256", kid: str | None = "ec", **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers={"kid": kid} if kid else None)


def forged(header: dict[str, Any], signature: bytes = b"", secret: bytes | None = None, **changes: Any) -> str:
    """A token as no library would make it; signed by HMAC where there is a secret."""
    parts = [_base64(json.dumps(part).encode()) for part in (header, claims(**changes))]
    if secret is not None:
        signature = hmac.new(secret, ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join([*parts, _base64(signature)])


def signed(changes: dict[str, Any], header: dict[str, Any] | None = None) -> str:
    """By the legacy secret, so that nothing but what is changed is wrong."""
    return forged({"alg": "HS256", **(header or {})}, secret=SECRET.encode(), **changes)


def raw(payload: bytes, header: bytes = b'{"alg": "HS256"}') -> str:
    """By the legacy secret, of parts that no library would write."""
    text = f"{_base64(header)}.{_base64(payload)}"
    return f"{text}.{_base64(hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).digest())}"


def with_claims(genuine: str, **changes: Any) -> str:
    header, _, signature = genuine.split(".")
    return f"{header}.{_base64(json.dumps(claims(**changes)).encode())}.{signature}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Published:
    """The project's key set, and how often it was read."""

    def __init__(self) -> None:
        self.document: Any = published()
        self.reads: list[str] = []
        self.down = False

    def __call__(self, url: str) -> Any:
        self.reads.append(url)
        if self.down:
            raise httpx.ConnectError("down")
        return self.document


@pytest.fixture
def key_set() -> Published:
    return Published()


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def verifier(key_set: Published, clock: list[float]) -> TokenVerifier:
    settings = Settings(supabase_url=URL, jwt_secret=SECRET)  # type: ignore[arg-type]
    return TokenVerifier(settings, key_set, lambda: clock[0])


class TestGenuine:
    @pytest.mark.parametrize(
        ("key", "algorithm", "kid"),
        [(EC_KEY, "ES256", "ec"), (RSA_KEY, "RS256", "rsa"), (SECRET, "HS256", None), (SECRET, "HS256", "legacy")],
    )
    def test_token(self, verifier: TokenVerifier, key: Any, algorithm: str, kid: str | None) -> None:
        assert verifier.user_of(token(key, algorithm, kid)) == USER

    def test_keys_are_read_once(self, verifier: TokenVerifier, key_set: Published) -> None:
        for _ in range(3):
            verifier.user_of(token())
        assert key_set.reads == [f"{URL}/auth/v1/.well-known/jwks.json"]

    def test_issuer_by_setting(self, key_set: Published) -> None:
        settings = Settings(supabase_url="http://127.0.0.1:1", jwt_issuer="https://id.example.com")
        assert TokenVerifier(settings, key_set).user_of(token(iss="https://id.example.com")) == USER


PUBLIC_PEM = EC_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
PUBLIC_DER = EC_KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
PUBLIC_RSA_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
COORDINATES = EC_KEY.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
PUBLIC_JWK = json.dumps(published()["keys"][0]).encode()

ATTACKS = {
    "another key": token(OTHER_KEY),
    "none": forged({"alg": "none", "kid": "ec"}),
    "None": forged({"alg": "None", "kid": "ec"}),
    "none without kid": forged({"alg": "none"}),
    "no algorithm": forged({"kid": "ec"}),
    "HS256 by public key": forged({"alg": "HS256", "kid": "ec"}, secret=PUBLIC_PEM),
    "HS256 by published key": forged({"alg": "HS256", "kid": "ec"}, secret=PUBLIC_JWK),
    "HS256 by empty secret": forged({"alg": "HS256"}, secret=b""),
    "HS256 by another secret": forged({"alg": "HS256"}, secret=b"another"),
    "HS512 by the secret": jwt.encode(claims(), SECRET * 2, "HS512"),
    "key of another kind": token(RSA_KEY, "RS256", "ec"),
    "algorithm of another kind": forged({"alg": "RS256", "kid": "ec"}, b"x" * 64),
    "stronger algorithm than the key's": token(RSA_KEY, "RS512", "rsa"),
    "PS256": token(RSA_KEY, "PS256", "rsa"),
    "symmetric key of the set": forged({"alg": "HS256", "kid": "oct"}, secret=b"shared" * 8),
    "key of a kind not taken": forged({"alg": "EdDSA", "kid": "okp"}, b"x" * 64),
    "unknown kid": token(kid="nobody's"),
    "no kid": token(kid=None),
    "kid that is no text": forged({"alg": "ES256", "kid": {"a": 1}}, b"x" * 64),
    "key of its own": forged({"alg": "ES256", "jwk": published()["keys"][0]}, b"x" * 64),
    "critical extension": forged({"alg": "ES256", "kid": "ec", "crit": ["x"]}, b"x" * 64),
    "expired": token(exp=int(time.time()) - 1),
    "no expiry": token(exp=None),
    "expiry that is no number": forged({"alg": "HS256"}, secret=SECRET.encode(), exp="soon"),
    "not yet": token(nbf=int(time.time()) + 600),
    "another audience": token(aud="anon"),
    "no audience": token(aud=None),
    "another issuer": token(iss="https://evil.example.com/auth/v1"),
    "issuer of a longer name": token(iss=f"{URL}/auth/v1/"),
    "no issuer": token(iss=None),
    "no subject": token(sub=None),
    "subject that is no id": token(sub="admin"),
    "service role": forged({"alg": "HS256"}, secret=SECRET.encode(), sub=None, aud=None, role="service_role"),
    "no token": "a.b.c",
    "empty signature": token().rsplit(".", 1)[0] + ".",
    "changed claims": with_claims(token(), sub=str(uuid4())),
    "deeply nested header": _base64(b"[" * 5000) + ".e30.e30",
    "deeply nested claims": _base64(b'{"alg":"HS256"}') + "." + _base64(b"[" * 5000) + ".e30",
    "header that is no object": _base64(b"[]") + ".e30.e30",
    "token of another project": token(OTHER_KEY, iss="https://another.supabase.co/auth/v1"),
    "token of another project by the kid of ours": token(OTHER_KEY, kid="ec", iss="https://another.supabase.co/auth/v1"),
    "genuine key, another project's issuer": token(iss="https://another.supabase.co/auth/v1"),
    "issuer in a list": signed({"iss": [f"{URL}/auth/v1"]}),
    "audience among others": signed({"aud": ["anon", "service"]}),
    "HS256 by public key in DER": forged({"alg": "HS256", "kid": "ec"}, secret=PUBLIC_DER),
    "HS256 by the RSA public key": forged({"alg": "HS256", "kid": "rsa"}, secret=PUBLIC_RSA_PEM),
    "HS256 by the coordinates": forged({"alg": "HS256", "kid": "ec"}, secret=COORDINATES),
    "kid of a file": forged({"alg": "HS256", "kid": "../../../../dev/null"}, secret=b""),
    "kid of a statement": token(kid="ec' union select 'k' --"),
    "kid of a command": token(kid="ec|whoami"),
    "kid of an address": token(OTHER_KEY, kid="https://evil.example.com/key"),
    "kid with a null": token(kid="ec\0"),
    "kid in another case": token(kid="EC"),
    "kid that is a number": forged({"alg": "ES256", "kid": 0}, b"x" * 64),
    "kid that is null": forged({"alg": "ES256", "kid": None}, b"x" * 64),
    "kid of a method": token(kid="__class__"),
    "key set of its own": forged({"alg": "ES256", "kid": "ec", "jku": "https://evil.example.com/jwks.json"}, b"x" * 64),
    "certificate of its own": forged({"alg": "RS256", "kid": "rsa", "x5u": "https://evil.example.com/c"}, b"x"),
    "critical extension, signed": signed({}, {"crit": ["exp"]}),
    "critical extension that is empty, signed": signed({}, {"crit": []}),
    "unencoded payload": signed({}, {"b64": False, "crit": ["b64"]}),
    "algorithm in a list": forged({"alg": ["ES256"], "kid": "ec"}, b"x" * 64),
    "algorithm in lower case": forged({"alg": "es256", "kid": "ec"}, b"x" * 64),
    "signature of zeros": forged({"alg": "ES256", "kid": "ec"}, b"\0" * 64),
    "signature in DER": forged({"alg": "ES256", "kid": "ec"}, b"\x30\x06\x02\x01\x00\x02\x01\x00"),
    "expired long ago, far in the future before": signed({"exp": -1}),
    "expiry that is no number of seconds": signed({"exp": "1e400"}),
    "expiry that is a truth": signed({"exp": True}),
    "issued in the future": signed({"iat": int(time.time()) + 600}),
    "subject that is a number": signed({"sub": 1}),
    "subject in a list": signed({"sub": [USER]}),
    "claims that are no object": raw(b"[]"),
    "claims twice": raw(json.dumps(claims()).encode()[:-1] + b', "sub": "admin"}'),
    "claims twice, the genuine last": raw(b'{"sub": "admin", ' + json.dumps(claims()).encode()[1:]),
    "header twice": raw(json.dumps(claims()).encode(), b'{"alg": "none", "alg": "HS256"}'),
    "four parts": token() + ".x",
    "encrypted": _base64(b'{"alg":"RSA-OAEP","enc":"A256GCM"}') + ".a.b.c.d",
    "huge claims": signed({"x": "y" * 1_000_000}),
    "huge header": forged({"alg": "ES256", "kid": "k" * 1_000_000}, b"x" * 64),
    "huge signature": forged({"alg": "ES256", "kid": "ec"}, b"x" * 1_000_000),
}  # fmt: skip


class TestForged:
    @pytest.mark.parametrize("attack", ATTACKS)
    def test_token(self, verifier: TokenVerifier, attack: str) -> None:
        with pytest.raises(Problem) as raised:
            verifier.user_of(ATTACKS[attack])
        assert (raised.value.status, raised.value.code) == (401, "unauthorized")

    def test_hs256_without_a_legacy_secret(self, key_set: Published) -> None:
        verifier = TokenVerifier(Settings(supabase_url=URL), key_set)
        for attack in (token(SECRET, "HS256", None), forged({"alg": "HS256"}, secret=b"")):
            with pytest.raises(Problem) as raised:
                verifier.user_of(attack)
            assert raised.value.status == 401


class TestKeySet:
    def test_is_read_again_for_a_new_key(self, verifier: TokenVerifier, key_set: Published, clock: list[float]) -> None:
        verifier.user_of(token())
        jwk = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(OTHER_KEY.public_key())), "kid": "new"}
        key_set.document = {"keys": [jwk]}
        clock[0] += 31
        assert verifier.user_of(token(OTHER_KEY, kid="new")) == USER

    def test_is_not_read_for_every_unknown_key(self, verifier: TokenVerifier, key_set: Published) -> None:
        for number in range(20):
            with pytest.raises(Problem):
                verifier.user_of(token(kid=f"unknown {number}"))
        assert len(key_set.reads) == 1

    def test_that_was_revoked_ends(self, verifier: TokenVerifier, key_set: Published, clock: list[float]) -> None:
        verifier.user_of(token())
        key_set.document = {"keys": []}
        clock[0] += 601
        with pytest.raises(Problem):
            verifier.user_of(token())

    def test_that_cannot_be_read_is_no_401(self, verifier: TokenVerifier, key_set: Published) -> None:
        key_set.down = True
        with pytest.raises(Problem) as raised:
            verifier.user_of(token())
        assert (raised.value.status, raised.value.code) == (503, "identity_unavailable")

    def test_that_is_known_outlives_its_source(
        self, verifier: TokenVerifier, key_set: Published, clock: list[float]
    ) -> None:
        verifier.user_of(token())
        key_set.down = True
        clock[0] += 601
        assert verifier.user_of(token()) == USER

    def test_that_cannot_be_read_is_not_asked_for_by_every_request(
        self, verifier: TokenVerifier, key_set: Published, clock: list[float]
    ) -> None:
        key_set.down = True
        for expected_reads in (1, 1, 2):
            with pytest.raises(Problem) as raised:
                verifier.user_of(token())
            assert (raised.value.status, raised.value.retry_after, len(key_set.reads)) == (503, 5, expected_reads)
            clock[0] += 3
        key_set.down = False
        clock[0] += 3
        assert verifier.user_of(token()) == USER

    @pytest.mark.parametrize("attack", ["none", "None", "no algorithm", "PS256", "key of a kind not taken"])
    def test_is_not_asked_for_by_what_no_key_could_sign(
        self, verifier: TokenVerifier, key_set: Published, attack: str
    ) -> None:
        """No caller causes a 5xx: such a token is refused whether or not the key set can be read."""
        key_set.down = True
        with pytest.raises(Problem) as raised:
            verifier.user_of(ATTACKS[attack])
        assert (raised.value.status, key_set.reads) == (401, [])

    def test_that_no_project_publishes_lets_nobody_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A project with the legacy secret alone answers 404."""

        def get(url: str, **options: Any) -> httpx.Response:
            return httpx.Response(404, request=httpx.Request("GET", url))

        monkeypatch.setattr(httpx, "get", get)
        verifier = TokenVerifier(Settings(supabase_url=URL, jwt_secret=SECRET))  # type: ignore[arg-type]
        with pytest.raises(Problem) as raised:
            verifier.user_of(token())
        assert raised.value.status == 401
        assert verifier.user_of(token(SECRET, "HS256", None)) == USER

    @pytest.mark.parametrize("document", [None, [], {}, {"keys": None}, {"keys": {"ec": 1}}, {"keys": "ec"}, "keys"])
    def test_that_is_none(self, verifier: TokenVerifier, key_set: Published, document: Any) -> None:
        """As one that cannot be read."""
        key_set.document = document
        for _ in range(3):
            with pytest.raises(Problem) as raised:
                verifier.user_of(token())
            assert (raised.value.status, raised.value.code) == (503, "identity_unavailable")
        assert len(key_set.reads) == 1

    @pytest.mark.parametrize(
        "odd",
        [
            None, "ec", [], {}, {"kty": []}, {"kty": "RSA", "kid": "r"}, {"kty": "RSA", "kid": "r", "n": "!", "e": "!"},
            {"kty": "EC", "crv": "P-256", "kid": "e", "x": "AA", "y": "AA"},
            {**published()["keys"][0], "kid": "e", "alg": "ES999"}, {**published()["keys"][0], "kid": ["e"], "x": 1},
            {**published()["keys"][1], "kid": "r", "alg": "RSA-OAEP"},
            {**published()["keys"][1], "kid": "r", "use": "enc"},
        ],
    )  # fmt: skip
    def test_an_odd_key_keeps_nobody_else_out(self, verifier: TokenVerifier, key_set: Published, odd: Any) -> None:
        key_set.document = {"keys": [odd, *published()["keys"]]}
        assert [verifier.user_of(token()) for _ in range(3)] == [USER] * 3
        assert len(key_set.reads) == 1
        with pytest.raises(Problem) as raised:
            verifier.user_of(token(RSA_KEY, "RS256", "r"))
        assert raised.value.status == 401

    def test_that_is_known_does_not_outlive_its_source_for_ever(
        self, verifier: TokenVerifier, key_set: Published, clock: list[float]
    ) -> None:
        verifier.user_of(token())
        key_set.down = True
        clock[0] += 3601
        with pytest.raises(Problem) as raised:
            verifier.user_of(token())
        assert raised.value.code == "identity_unavailable"

    def test_ends_for_a_frozen_container_too(self, key_set: Published, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whose monotonic clock stands still."""
        verifier = TokenVerifier(Settings(supabase_url=URL), key_set)
        verifier.user_of(token())
        key_set.document = {"keys": []}
        now = time.time()
        verifier._clock._clocks = (lambda: 0.0, lambda: now + 601)  # type: ignore[attr-defined]
        with pytest.raises(Problem):
            verifier.user_of(token())


class TestCaller:
    @pytest.mark.parametrize("org", [None, "acme", "3f1c2a94-5a1e-4c8f-9a6b-0d2e7c41b8f5"])
    def test_of_a_user(self, monkeypatch: pytest.MonkeyPatch, verifier: TokenVerifier, org: str | None) -> None:
        rpc = FakeRpc({"index_status": lambda request: {"pending": 0, "indexing": 0, "failed": 0}})
        headers = {"x-almagest-org": org} if org else {}
        assert self.status(monkeypatch, verifier, rpc, headers) == 200
        [request] = rpc.requests("authenticate")
        assert (request["user_id"], request["org"]) == (USER, org)

    @pytest.mark.parametrize("org", ["", "a b", "a,b", "ß", "x" * 64, "'"])
    def test_of_an_impossible_org(self, monkeypatch: pytest.MonkeyPatch, verifier: TokenVerifier, org: str) -> None:
        rpc = FakeRpc()
        headers = {"x-almagest-org": org or " "}
        assert self.status(monkeypatch, verifier, rpc, headers) == 401
        assert rpc.requests("authenticate") == []

    def test_remembered_is_of_the_same_org(self, monkeypatch: pytest.MonkeyPatch, verifier: TokenVerifier) -> None:
        rpc = FakeRpc({"index_status": lambda request: {"pending": 0, "indexing": 0, "failed": 0}})
        made = runtime(rpc)
        for org in ("one", "two", "one"):
            self.status(monkeypatch, verifier, rpc, {"x-almagest-org": org}, made)
        assert [request["org"] for request in rpc.requests("authenticate")] == ["one", "two"]

    def status(
        self, monkeypatch: pytest.MonkeyPatch, verifier: TokenVerifier, rpc: FakeRpc, headers: dict[str, str],
        made: Any = None,
    ) -> int:  # fmt: skip
        from almagest.handlers import write

        made = made or runtime(rpc)
        made.__dict__["tokens"] = verifier
        monkeypatch.setattr(write.app, "connect", lambda: made)
        return send(write.app, event("GET", "/v1/write/index", key=token(), headers=headers)).status
