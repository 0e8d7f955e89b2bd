"""What ptxas made of a kernel: its instructions, its loops, and what of a loop only serves copies to shared memory."""
import re
from dataclasses import dataclass, field

LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P[T\d]+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
BACK = re.compile(r"^BRA")
TARGET = re.compile(r"0x([0-9a-f]+)\s*$")
REGISTER = re.compile(r"\b(U?R)(\d+)(\.64)?")
PREDICATE = re.compile(r"\b(U?P\d)\b")
NO_RESULT = ("ST", "BRA", "BAR", "LDGSTS", "LDGDEPBAR", "DEPBAR", "RED", "EXIT", "BSSY", "BSYNC", "FENCE", "MEMBAR", "NOP",
             "WARPSYNC", "CALL", "RET", "UTMA", "SYNCS", "ERRBAR", "CCTL", "YIELD")
PRODUCTS = ("HMMA", "HGMMA", "QGMMA", "IMMA")


@dataclass
class Instruction:
    address: int
    guard: str
    op: str
    operands: str
    makes: set = field(default_factory=set)  # registers and predicates
    takes: set = field(default_factory=set)

    def is_(self, *names):
        return self.op.split(".")[0] in names


def split_operands(text):
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "[{") - (c in "]}")
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return parts + [part.strip()] if part.strip() else parts


def registers(operand, width=1):
    found = set()
    for kind, number, pair in REGISTER.findall(operand):
        for i in range(2 if pair else width):
            found.add(f"{kind}{int(number) + i}")
    return found | set(PREDICATE.findall(operand))


def result_width(op):
    if op.startswith("HMMA"):
        return 4
    if ".128" in op:
        return 4
    return 2 if ".WIDE" in op or re.search(r"\.(64|X2)\b", op) else 1


def analyse(line):
    found = LINE.match(line)
    if not found:
        return None
    address, guard, op, operands = found.groups()
    one = Instruction(int(address, 16), guard or "", op, operands)
    parts = split_operands(operands)
    width = result_width(op)
    results = 0 if op.startswith(NO_RESULT) or not parts else 1
    if results and len(parts) > 1 and re.fullmatch(r"U?P[T\d]", parts[1]):
        results = 2  # a carry, or a second predicate
    elif results and re.fullmatch(r"U?P[T\d]", parts[0]) and not op.startswith(("ISETP", "FSETP", "UISETP", "PLOP3", "HSETP")):
        results = 2  # SHFL, LOP3 with a predicate in front
    for i, part in enumerate(parts):
        if i < results:
            one.makes |= registers(part, width)
        elif op.startswith("HMMA"):
            one.takes |= registers(part, 4)
        elif ".WIDE" in op and i == len(parts) - 1:
            one.takes |= registers(part, 2)
        elif op.startswith("ST") and i == 1:
            one.takes |= registers(part, 4 if ".128" in op else 2 if ".64" in op else 1)
        else:
            one.takes |= registers(part)
    if guard:
        one.takes |= set(PREDICATE.findall(guard))
    return one


@dataclass
class Kernel:
    name: str
    code: list

    def count(self, *ops):
        return sum(one.is_(*ops) for one in self.code)

    def loops(self):
        """Bodies of loops, from the target of a backward branch to it."""
        place = {one.address: i for i, one in enumerate(self.code)}
        bodies = {}
        for i, one in enumerate(self.code):
            target = TARGET.search(one.operands) if BACK.match(one.op) else None
            if target and int(target.group(1), 16) < one.address:
                first = place[int(target.group(1), 16)]
                bodies[first] = max(bodies.get(first, 0), i)
        return [range(first, last + 1) for first, last in bodies.items()]

    def main_loop(self, *ops):
        """The innermost loop with these instructions; of several the one that has most of them."""
        def holds(body):
            return sum(self.code[i].is_(*ops) for i in body)
        having = [body for body in self.loops() if holds(body)]
        inner = [b for b in having if not any(c != b and c.start >= b.start and c.stop <= b.stop for c in having)]
        return max(inner, key=lambda body: (holds(body), len(body)), default=None)

    def copy_instructions(self, body):
        """Of a loop: the copies to shared memory and what nothing else depends on; places in the code."""
        order = list(body)
        mine = {i for i in order if self.code[i].is_("LDGSTS") or
                (self.code[i].makes and not self.code[i].is_("LDSM", "BAR", *PRODUCTS))}
        # @!PT LDS RZ, [RZ]: what ptxas puts before the first copy of a group.
        mine |= {i for i in order if self.code[i].is_("LDS") and self.code[i].guard == "!PT"}
        uses = {i: self.users(i, order) for i in mine if not self.code[i].is_("LDGSTS") and self.code[i].guard != "!PT"}
        changed = True
        while changed:
            lost = {i for i in mine if i in uses and (not (uses[i] - {i}) or not uses[i] <= mine)}
            changed = bool(lost)
            mine -= lost
        return mine

    def users(self, at, order):
        """Places of a loop that read what one of its instructions makes, around the loop until it is made anew."""
        open_, found = set(self.code[at].makes), set()
        start = order.index(at)
        for i in order[start + 1:] + order[:start + 1]:
            one = self.code[i]
            if one.takes & open_:
                found.add(i)
            if not one.guard:
                open_ -= one.makes
            if not open_:
                break
        return found


def kernels(text):
    """{mangled name: Kernel} of what cuobjdump -sass prints."""
    found, code = {}, None
    for line in text.splitlines():
        head = re.match(r"\s+Function : (\S+)", line)
        if head:
            code = []
            found[head.group(1)] = Kernel(head.group(1), code)
        elif code is not None:
            one = analyse(line)
            if one is not None:
                code.append(one)
    return found
