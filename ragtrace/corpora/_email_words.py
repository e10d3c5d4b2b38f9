"""The word lists and sentence patterns behind the synthetic e-mails. Patterns use the slots of ``_email``."""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    """What e-mails of one topic say."""

    subjects: tuple[str, ...]
    sentences: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words(
    "Alice Bernard Clara Diane Edgar Fiona Gerald Helen Irene Julian Karen Leonard Monica Nathan Olivia Patrick Rachel "
    "Samuel Teresa Victor Wendy Albert Carol Douglas Ellen Howard Janet Laura Martin Nancy Oscar Paula Roger Walter"
)
SURNAMES = _words(
    "Lay Skilling Fastow Causey Delainey Kitchen Lavorato Whalley Belden Shively Kean Steffes Dasovich Haedicke Glisan "
    "McMahon Horton Kaminski Tholt Grigsby Presto Hayslett Bowen Frevert Hannon Sutton Koenig Rieker Shankman Pickering"
)
COMPANIES = (
    ("Northgate Energy", "northgate-energy.com"),
    ("Larkspur Pipeline", "larkspurpipeline.com"),
    ("Bluestem Power", "bluestempower.com"),
    ("Cordell Trading", "cordelltrading.com"),
    ("Pecan Ridge Gas", "pecanridgegas.com"),
    ("Halvorsen Capital", "halvorsencapital.com"),
    ("Meridian Basin", "meridianbasin.com"),
    ("Stonebridge Utilities", "stonebridgeutilities.com"),
)
CITIES = _words("Houston Portland Calgary Omaha Denver Tulsa Chicago Dallas Phoenix Sacramento")
WEEKDAYS = _words("Monday Tuesday Wednesday Thursday Friday")
MONTHS = _words("January February March April May June July August September October November December")
AREA_CODES = (214, 303, 312, 403, 503, 602, 713, 918)
REFERENCE_PREFIXES = ("CTR", "INV", "REF", "ACC", "PO")
PROJECT_FIRST = _words("Amber Cedar Copper Falcon Granite Harbor Juniper Mesa Pioneer Summit Timber Willow")
PROJECT_SECOND = _words("Bridge Canyon Crossing Gate Hollow Landing Point Ridge Run Station")

OPENINGS = (
    "I went through the {project} papers on {weekday} and have a few points.",
    "Thank you for the call about {project} on {weekday}.",
    "Here is where we stand on {project} after the meeting in {city}.",
    "Following up on {project}, which {counterparty} raised again in {month}.",
    "Before the {city} review, please look over my notes on {project}.",
    "As promised on {weekday}, a short update on {project}.",
)
PLANTED = (
    "{third} keeps the file under {reference} and can send you a copy.",
    "Please quote {reference} when you speak with {third}.",
    "{third} opened {reference} for this and expects your answer by {month} {day}.",
    "The number is {reference}, and {third} has signed it for our side.",
    "I asked {third} to move everything that belongs to {reference} to your team.",
)
COMMON = (
    "Nothing should go to {counterparty} before legal has cleared it.",
    "I will be in {city} until {weekday} and can take calls in the morning.",
    "Call me at {phone} if the dates do not work.",
    "The cost centre has {amount} left for the quarter.",
    "Let us talk on {weekday} at the latest.",
    "My assistant has booked a room in {city} for {month} {day}.",
    "We are {number} days behind the plan that was agreed in {month}.",
    "Please keep the attachment inside the group for now.",
    "{counterparty} wants an answer in writing.",
    "The last version had {number} open comments, most of them small.",
)
CLOSINGS = ("Regards,", "Thanks,", "Best regards,", "Many thanks,", "Sincerely,")

TOPICS = {
    "gas transport contract": Topic(
        ("Transport capacity", "Pipeline contract draft", "Firm capacity from {city}"),
        (
            "The firm capacity from {city} is {number} thousand units a day until {month}.",
            "{counterparty} would release part of its pipeline capacity at a {percent} discount.",
            "The transport rate rises by {percent} when the new tariff is filed.",
            "Fuel retention on that segment was {percent} last winter.",
            "We can shift the delivery point to {city} without a new contract.",
            "The reservation charge comes to {amount} a month.",
        ),
    ),
    "credit exposure": Topic(
        ("Credit limit of {counterparty}", "Exposure report", "Collateral call"),
        (
            "Our exposure to {counterparty} stands at {amount} and the limit is below that.",
            "A letter of credit over {amount} would cover the winter positions.",
            "The rating agency put {counterparty} on watch in {month}.",
            "Netting brings the exposure down by {percent}.",
            "The margin call of {amount} is due on {weekday}.",
            "Credit wants the guarantee renewed before {month} {day}.",
        ),
    ),
    "power plant outage": Topic(
        ("Outage schedule", "Turbine repair near {city}", "Unit back on line"),
        (
            "Unit two near {city} tripped on {weekday} and is down for {number} hours.",
            "The turbine blades are worn by {percent} more than the maker allows.",
            "Replacement power costs us about {amount} for each day of the outage.",
            "The maintenance crew from {counterparty} arrives on {month} {day}.",
            "The boiler inspection found {number} tubes that have to be changed.",
            "We expect full load again in the first week of {month}.",
        ),
    ),
    "regulatory filing": Topic(
        ("Comments to the commission", "Tariff filing", "Rate case in {city}"),
        (
            "The commission takes written comments until {month} {day}.",
            "Our filing asks for a rate increase of {percent} over two years.",
            "{counterparty} has filed a protest of {number} pages.",
            "The hearing in {city} was moved to {weekday}.",
            "Staff asked for the workpapers behind the figure of {amount}.",
            "A settlement would freeze the rates until {month} of next year.",
        ),
    ),
    "staff reorganisation": Topic(
        ("Reporting lines", "New desk in {city}", "Open positions"),
        (
            "The {city} desk gets {number} new positions from {month} on.",
            "Two analysts move from origination to risk on {month} {day}.",
            "The bonus pool is {percent} smaller than last year.",
            "Relocation to {city} is paid up to {amount} a person.",
            "Interviews for the vice president role start on {weekday}.",
            "Reviews have to be in the system before the {month} committee.",
        ),
    ),
    "quarterly audit": Topic(
        ("Audit questions", "Reserve for {counterparty}", "Quarter close"),
        (
            "The auditors asked why the reserve for {counterparty} fell by {percent}.",
            "There are {number} confirmations that have not come back.",
            "An invoice of {amount} was booked in {month} although the work came later.",
            "The valuation model was last tested in {month}.",
            "They sit in the {city} office from {weekday} on and need access to the ledger.",
            "The difference between the two ledgers is {amount}.",
        ),
    ),
    "software migration": Topic(
        ("Trade system cut-over", "Data migration", "Access to the new scheduler"),
        (
            "The new scheduler goes live in {city} on {month} {day}.",
            "About {percent} of the old deals did not load and need a manual fix.",
            "The vendor wants {amount} for another year of support.",
            "Passwords for the {number} test users go out on {weekday}.",
            "The nightly batch took {number} minutes, far longer than before.",
            "The interface to {counterparty} still rejects cancelled trades.",
        ),
    ),
    "weather hedge": Topic(
        ("Degree day option", "Winter hedge", "Snow cover for {city}"),
        (
            "The option pays {amount} for each degree day above the strike in {city}.",
            "{counterparty} quotes a premium that is {percent} over our model.",
            "The season runs from {month} to the end of March.",
            "Ten years of {city} station data give a mean of {number} days.",
            "A collar would cost us nothing up front but caps the gain at {amount}.",
            "The forecast of {weekday} moved the fair value by {percent}.",
        ),
    ),
    "property insurance": Topic(
        ("Claim after the {city} fire", "Policy renewal", "Deductible"),
        (
            "The adjuster puts the damage at the {city} warehouse at {amount}.",
            "The deductible went up by {percent} with the renewal in {month}.",
            "{counterparty} disputes {number} items on the list of losses.",
            "Photos of the roof were taken on {weekday}, before the rain.",
            "Cover for the substation ends on {month} {day} unless we extend it.",
            "Business interruption is insured for {number} days.",
        ),
    ),
    "office relocation": Topic(
        ("Move to {city}", "Lease terms", "Floor plan"),
        (
            "The landlord in {city} offers {number} parking spaces and a free month.",
            "The lease would cost {amount} a year with a {percent} step each year.",
            "The movers come on {weekday} and need the boxes labelled.",
            "Trading needs {number} desks on one floor, close to the server room.",
            "The old lease ends on {month} {day} and cannot be extended.",
            "Furniture from {counterparty} can be taken over at {percent} of its price.",
        ),
    ),
}
