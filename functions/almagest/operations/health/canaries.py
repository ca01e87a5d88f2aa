"""The canaries: a few memories that must always come back as they did when they were planted.

They are about nothing that the paraphrase set is about. A change of any text needs another VERSION.
"""

from almagest.operations.health.paraphrases import Pair

VERSION = 1

CANARIES = (
    Pair("A yellow bird in a cage warned miners of bad air before they felt it.", "which animal told miners of gas"),
    Pair("The lighthouse keeper winds the clockwork of the lamp at dusk.", "who winds the lamp of the lighthouse"),
    Pair("Salt is harvested from shallow ponds that the summer sun dries out.", "how is salt won from ponds"),
)
