"""Put the model's files where the embedder looks for them: ``python -m almagest.embedding``."""

import sys

from almagest.embedding.model import EmbeddingUnavailable, assemble
from almagest.settings import Settings


def main() -> int:
    """Assemble the model, every file checked by its hash; 0 when it is in place."""
    directory = Settings().model_path
    try:
        assemble(directory)
    except (EmbeddingUnavailable, OSError) as error:
        sys.stderr.write(f"The embedding model could not be put into {directory}: {error}\n")
        return 1
    sys.stdout.write(f"The embedding model is in {directory}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
