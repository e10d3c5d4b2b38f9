"""Word lists and sentence patterns behind the synthetic business documents. Patterns use the slots of ``_paper``."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """What documents of one kind say."""

    topic: str
    department: str
    titles: tuple[str, ...]
    sentences: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words(
    "Andrea Barbara Carl Daniel Emily Frank Gloria Henry Isabel James Katherine Louis Margaret Nicholas Pamela Richard "
    "Susan Thomas Vincent William Amanda Brian Cynthia Dennis Edward Frances Gregory Heather Jeffrey Kimberly Lawrence "
    "Melissa Norman Philip Rebecca Stephen Theresa Wayne"
)
SURNAMES = _words(
    "Anderson Bennett Carpenter Donovan Eriksen Fleming Gallagher Hoffman Ingram Jensen Kowalski Lindgren Mendoza "
    "Novak Osborne Patterson Quigley Ramirez Schneider Thornton Underhill Vasquez Whitaker Yamamoto Zimmerman Abbott "
    "Brennan Castillo Dougherty Ellison Fitzgerald Guerrero Holloway Jankowski"
)
COMPANIES = (
    ("Harrow Instruments Ltd", "harrow-instruments.com"),
    ("Tessel Logistics Inc", "tessellogistics.com"),
    ("Brightwater Foods Inc", "brightwaterfoods.com"),
    ("Kestrel Systems Corp", "kestrelsystems.net"),
    ("Oakmere Packaging Ltd", "oakmerepackaging.com"),
    ("Vantage Surgical Corp", "vantagesurgical.com"),
    ("Ironwood Tooling LLC", "ironwoodtooling.com"),
    ("Calder Textiles Ltd", "caldertextiles.com"),
    ("Northlight Media Group", "northlightmedia.net"),
    ("Seaforth Marine LLC", "seaforthmarine.com"),
)
CITIES = _words("Boston Seattle Atlanta Memphis Toledo Raleigh Tucson Madison Albany Spokane Fresno Hartford")
STREETS = _words("Maple Cedar Lincoln Franklin Jefferson Chestnut Walnut Jackson Adams Highland")
STREET_ENDINGS = ("Street", "Avenue", "Road", "Drive")
WEEKDAYS = _words("Monday Tuesday Wednesday Thursday Friday")
MONTHS = _words("January February March April May June July August September October November December")
AREA_CODES = (206, 212, 404, 419, 520, 608, 617, 901, 919)
PREFIXES = ("DOC", "CASE", "ORD", "TKT", "CTR", "EMP")
PRODUCT_FIRST = _words("Atlas Beacon Cobalt Delta Ember Fjord Garnet Helix Indigo Jasper Krypton Lumen Meteor Nimbus")
PRODUCT_SECOND = _words("valve scanner conveyor sensor mixer cutter terminal gauge pump loader printer relay")

OPENINGS = (
    "This paper sums up where {project} stands in {month}.",
    "It was written for the {weekday} meeting in {city} and covers {project}.",
    "{company} asked for a written account of {project} before the end of {month}.",
    "What follows replaces the version of {month} {day} and concerns {project}.",
    "The facts on {project} were collected in {city} over {number} working days.",
    "After the call of last {weekday} the open points of {project} were put together here.",
)
PLANTED = (
    "{contact} is in charge at {client} and can be reached at {contact_mail}.",
    "Questions go to {contact} of {client}, {contact_mail}.",
    "On the side of {client} everything was agreed with {contact} ({contact_mail}).",
    "{client} has named {contact} for this, with the address {contact_mail}.",
    "A copy was sent to {contact} at {client}, to {contact_mail}.",
)
WITH_CODE = (
    "The papers are kept under {reference}.",
    "It is booked as {reference} in the ledger.",
    "Please put {reference} on every invoice that belongs to it.",
    "The entry {reference} was opened for it on {month} {day}.",
    "In the archive it is found as {reference}.",
)
COMMON = (
    "Nothing of this is to be passed on before the board has seen it.",
    "The next review is due on {weekday}, {month} {day}.",
    "Costs so far come to {amount}, which is {percent} over the plan.",
    "The work takes place in {city} and needs {number} people.",
    "Our office there can be called on {phone}.",
    "A decision is wanted by {month} {day}, else the offer lapses.",
    "The figure of {amount} leaves out travel and storage.",
    "Two of the {number} points on the list are still disputed.",
    "The agreement with {client} ends in {month} and can be renewed once.",
    "A draft went round on {weekday} and came back with {number} remarks.",
    "Insurance covers {percent} of what may be lost.",
    "The team in {city} took over in {month}.",
    "If nothing is heard by {weekday}, the work goes ahead as described.",
    "The auditors looked at {number} vouchers and returned three of them.",
)

KINDS = (
    Kind(
        "supplier complaint",
        "Purchasing",
        ("Late deliveries of the {product}", "Faulty lot of {product} parts", "Claim against {client}"),
        (
            "Of the last lot {percent} of the {product} parts were out of tolerance.",
            "{client} delivered {number} days late for the third time this year.",
            "The housing cracks when it is tightened with more than {number} newton metres.",
            "A penalty of {amount} falls due under clause {day} of the agreement.",
            "Goods inwards in {city} has put {number} boxes aside for inspection.",
            "The replacement parts were promised for the second week of {month}.",
            "The coating comes off after {number} hours in the salt spray cabinet.",
            "Another source in {city} quotes {percent} less for the same drawing.",
        ),
    ),
    Kind(
        "meeting minutes",
        "Management",
        ("Minutes of the {city} meeting", "Steering group on {project}", "Notes from the {weekday} round"),
        (
            "The budget was raised by {amount} with one vote against.",
            "{number} tickets were closed since the last round and {day} are left.",
            "The {city} branch reports {percent} more orders than in {month}.",
            "It was agreed to move the launch of the {product} to {month}.",
            "Sales will bring a list of {number} customers to the next round.",
            "The proposal to close the night shift was put off until {weekday}.",
            "Travel above {amount} needs a signature from now on.",
            "The group wants a second opinion on the {percent} discount.",
        ),
    ),
    Kind(
        "incident report",
        "Information security",
        ("Outage of the {product} service", "Lost laptop in {city}", "Access by a former supplier"),
        (
            "The service was out of reach for {number} minutes on {weekday} morning.",
            "An account that should have been closed in {month} was used from {city}.",
            "About {percent} of the requests failed before the load was moved.",
            "The backup of {month} {day} could be read back without loss.",
            "{number} passwords were reset as a measure of caution.",
            "The cause was a certificate for the {product} gateway that had run out.",
            "Monitoring raised the alarm {day} minutes after the first error.",
            "The damage is put at {amount}, most of it overtime.",
        ),
    ),
    Kind(
        "personnel notice",
        "Human resources",
        ("Change of duties in {city}", "Parental leave cover", "Training plan for the {product} line"),
        (
            "The post in {city} will be filled from {month} {day} for {number} weeks.",
            "The yearly bonus is fixed at {percent} of the base salary.",
            "A relocation allowance of {amount} has been approved.",
            "{number} hours of training on the {product} are to be taken before {month}.",
            "The probation period ends on {month} {day}.",
            "Leave that is not taken by {month} is paid out.",
            "The works doctor in {city} has cleared the return to shift work.",
            "Pay for on-call weekends goes up by {percent}.",
        ),
    ),
    Kind(
        "contract summary",
        "Legal",
        ("Lease of the {city} warehouse", "Licence for the {product} firmware", "Frame agreement with {client}"),
        (
            "The rent of {amount} a quarter follows the price index with a cap of {percent}.",
            "Either side may give notice of {number} weeks to the end of {month}.",
            "Liability is limited to {amount} except for wilful acts.",
            "The courts of {city} have jurisdiction.",
            "Source code of the {product} firmware lies with an escrow agent in {city}.",
            "{client} may inspect the books once a year with {day} days of warning.",
            "Late payment bears interest of {percent} a year.",
            "The option to buy expires on {month} {day}.",
        ),
    ),
    Kind(
        "site inspection",
        "Facilities",
        ("Roof of the {city} plant", "Fire doors in {city}", "Inspection of the {product} hall"),
        (
            "The sprinkler line above the {product} hall loses {percent} of its pressure in an hour.",
            "{number} of the fire doors do not close by themselves.",
            "The crane was last tested in {month} and is limited to {number} tonnes until then.",
            "Repair of the roof is estimated at {amount}.",
            "Noise at the south fence reaches {number} decibels at night.",
            "The lift has to be looked at again before {month} {day}.",
            "The contractor from {city} can begin on a {weekday} at the earliest.",
            "Heating costs fell by {percent} since the windows were changed.",
        ),
    ),
    Kind(
        "customer visit",
        "Sales",
        ("Visit to {client}", "Trial of the {product} in {city}", "Renewal talks with {client}"),
        (
            "{client} runs {number} machines of the {product} type and plans for more.",
            "They would sign for three years at a discount of {percent}.",
            "The trial in {city} ran for {number} days without a stop.",
            "A competitor has offered {amount} for the whole line.",
            "Their buyer wants spare parts in {city} within {day} hours.",
            "The display of the {product} is hard to read in sunlight.",
            "The order is worth {amount} if it comes before {month}.",
            "They asked for references from {city} and from abroad.",
        ),
    ),
    Kind(
        "product release",
        "Engineering",
        ("Release notes of the {product}", "Field test of the {product}", "Recall of early {product} units"),
        (
            "Version {day} of the control board draws {percent} less current.",
            "{number} units of the first series have to be called back.",
            "The {product} now starts at temperatures below freezing.",
            "The test bench in {city} ran {number} cycles before a seal gave way.",
            "Approval for the medical version is expected in {month}.",
            "Each change of the mould costs {amount}.",
            "Firmware from before {month} must not be loaded any more.",
            "Drift of the reading stays under {percent} over a year.",
        ),
    ),
    Kind(
        "expense review",
        "Finance",
        ("Travel costs of the {city} branch", "Write-off of {product} stock", "Credit line of {client}"),
        (
            "Hotel bills in {city} were {percent} above the agreed rate.",
            "Stock of the {product} worth {amount} has not moved since {month}.",
            "{number} card payments have no receipt.",
            "{client} pays {number} days after the due date on average.",
            "The credit line is cut to {amount} from {month} on.",
            "A refund of {amount} came in on {weekday}.",
            "Two invoices from {month} were paid twice.",
            "The tax office in {city} accepts a flat rate of {percent}.",
        ),
    ),
    Kind(
        "transport plan",
        "Logistics",
        ("Night runs to {city}", "Customs papers for the {product}", "Carrier change for {client}"),
        (
            "The night run to {city} leaves {number} minutes earlier from {month} on.",
            "Customs kept {number} pallets of the {product} for {day} days.",
            "Fuel is charged at {percent} of the freight.",
            "The new carrier asks {amount} for each full load.",
            "{client} takes deliveries only on {weekday} mornings.",
            "Damage in transit fell to {percent} after the straps were changed.",
            "The depot in {city} has room for {number} trailers.",
            "Return loads would save {amount} a month.",
        ),
    ),
)
