"""The paraphrase set: memories, and for each a question that says it in other words.

Question and answer share as few words as they can, so that it takes the meaning to find one by the other. Written for
this check. A change of any text needs another VERSION, so that the set is planted anew.
"""

from dataclasses import dataclass

VERSION = 1


@dataclass(frozen=True)
class Pair:
    """A memory, and the question that it is the answer to."""

    memory: str
    question: str


PAIRS = (
    Pair(
        "The nightly backup is copied to a second region before sunrise.", "Are copies of our data kept somewhere else?"
    ),
    Pair("Invoices leave the house on the first working day of each month.", "When are customers billed?"),
    Pair("New colleagues get their laptop and badge from the front desk.", "How does a recent hire obtain equipment?"),
    Pair("Coffee beans are bought from the roaster across the street.", "Which shop supplies our espresso?"),
    Pair("The login page locks an account after five wrong passwords.", "What stops someone guessing credentials?"),
    Pair(
        "Heavy reports query the replica of the database and never the primary.",
        "Where should slow analytical SQL be executed?",
    ),
    Pair("Holiday requests need the manager's yes two weeks ahead.", "How early must I ask for vacation?"),
    Pair("Images are scaled down before they are sent to a phone.", "Do we shrink pictures for mobile devices?"),
    Pair("The cleaning crew comes on Tuesday and Friday evenings.", "When is the workplace tidied up?"),
    Pair("Each release is tried by a tenth of all users first.", "Do we roll out updates gradually?"),
    Pair("Old log files are thrown away after thirty days.", "How long is the record of events retained?"),
    Pair("The fire door on the third floor must stay shut.", "Which emergency exit may not be propped open?"),
    Pair("Parcels are picked up by the courier at four in the afternoon.", "Who fetches packages for shipping?"),
    Pair("The support team answers urgent tickets within an hour.", "How quickly do we react to critical complaints?"),
    Pair(
        "Salaries are paid in euros on the twenty-fifth.", "When is everyone's wage transferred, and in which currency?"
    ),
    Pair("The search box tolerates spelling mistakes up to two letters.", "Are typos forgiven when looking things up?"),
    Pair("Trees around the car park are pruned every autumn.", "When does the gardener cut the branches?"),
    Pair(
        "The train from the airport takes twenty minutes to the station.", "How do visitors who fly in reach the city?"
    ),
    Pair("Meeting rooms are freed when nobody shows up for ten minutes.", "What becomes of an unused booking?"),
    Pair("Milk and nuts are marked on the canteen's menu.", "Can people with allergies see what lunch contains?"),
)
