"""All benchmarks, one after the other: ``make bench``."""

import sys

from tests.bench import locomo

if __name__ == "__main__":
    sys.exit(locomo.main())
