"""How many tokens a text costs a model, told from its characters alone (D51).

There is no vocabulary here: a word that reads like English or code is taken for one token, or two if it is long, and
what looks like a hash, a key or noise for about one token in two characters. `estimate` is as near as that gets;
`at_most` errs on the safe side and is what budgets are held by. `benchmarks/reduction.py` measures both against
`o200k_base`, and the tests hold `at_most` above it on any text.
"""

from __future__ import annotations

import re
from itertools import pairwise

# A blank goes with what follows it; what white space is left is a piece of its own. Signs are told by their ranges
# below 0x80: a set that excludes all beyond takes ten times as long to compile.
_PIECES = re.compile(
    r" ?(?:[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\s\x00-\x7f]|[\x00-\x08\x0e-\x1b!-/:-@\[-`{-\x7f]+)|\s+?(?= \S|\S|\Z)"
)

_TWICE = re.compile(r"(.)\1")

# What may follow each letter in a word that reads like one: the pairs that make up 98 % of those in prose and code.
_FOLLOWS = {
    line[0]: frozenset(line[1:])
    for line in """
    abcdfgiklmnprstuvwxy baeijloruy cacehiklortu dadeilorsuy eacdefglmnpqrstvwxy faefilortu gaeghinorsu haeiortuy
    ibcdefglmnoprstv jeos kefins ladefilostuy mabcdeilmops nacdefgiklmnostuvy oabcdefgijklmnoprstuvw paehiloprstuy
    qu racdegikmnorstuy sacehiklopstuwy tacefhiloprstuy ubcdegilmnprstv vaei waehinors xcit yeopst ze
    """.split()  # noqa: SIM905 - ten lines of list would tell less
}
# One word may be four tokens where most are one: so much is added to a text of words that are not Loom's own.
SPARE = 3
_LINE_END = 1.0  # what a line end costs at most
_OWN = frozenset({
    "Asked", "Earlier", "Edited", "Found", "Listed", "Ran", "Read", "Recent", "bytes", "exit", "files", "in",
    "items", "lines", "loom", "more", "names", "output", "results", "status", "steps", "text", "JSON",
})  # fmt: skip
_KEPT = 40  # characters of a piece whose cost is remembered
_BLANKS = 16  # so many blanks, or line ends, in a row are one token
# Characters of a text that is judged whole; else so many samples of so many characters.
_WHOLE, _SAMPLES, _SAMPLE = 200_000, 32, 4096
# Beyond ASCII a character costs up to its bytes; these, which Loom itself writes, are one token each.
_SINGLE = frozenset("•…→—–“”’‘·äöüéèàçñÄÖÜ°§")  # noqa: RUF001 - as they are


def estimate(text: str) -> int:
    """Estimate how many tokens a text has; a large one is judged by samples from all over it."""
    if len(text) > _WHOLE:
        step = len(text) // _SAMPLES
        sample = "".join([text[start : start + _SAMPLE] for start in range(0, step * _SAMPLES, step)])
        return round(sum(map(_likely, _PIECES.findall(sample))) * len(text) / len(sample))
    return round(sum(map(_likely, _PIECES.findall(text))))


def size(text: str) -> dict[str, int]:
    """Give what an event tells of a text that was put into a conversation: `tokens`, estimated, and `characters`."""
    return {"tokens": estimate(text), "characters": len(text)}


def at_most(text: str) -> int:
    """Give a number of tokens that a text does not exceed.

    White space, signs, digits and other scripts never do, however they stand together, for a token has a byte at least.
    A word of letters is held to what words of its length cost beside each other: a long text of nothing but invented
    words, each picked for its rare letters, can have more.
    """
    pieces = _PIECES.findall(text)
    spare = SPARE if any(len(piece) > 2 and piece.strip() not in _OWN for piece in pieces) else 0
    return int(sum(map(_at_worst, pieces)) + spare + 0.999)


def closely(text: str) -> int:
    """Give a number of tokens that a text does not exceed, as `at_most` does, and nearer to it for prose and code.

    It knows the commonest words and signs: of English text it says about a seventh more than there are.
    """
    return int(weight(text) + SPARE + 0.999)


def weight(text: str) -> float:
    """Give what a text adds to a longer one by that measure; SPARE is for all of it."""
    return sum(map(_COSTS.__getitem__, _PIECES.findall(text)))


class _Costs(dict[str, float]):
    """What pieces cost at most, each found out once."""

    def __missing__(self, piece: str) -> float:
        cost = _known(piece)
        if len(piece) <= _KEPT:
            self[piece] = cost
        return cost


_COSTS = _Costs()


def _known(piece: str) -> float:
    words, small, signs = common()
    bare = piece.removeprefix(" ")
    if bare.isalpha():
        # Without a blank before it a word may share a token with the sign there, and be cut elsewhere.
        is_one = bare in small or (bare.istitle() and bare.lower() in words)
        return (1.1 if len(bare) == len(piece) else 1) if is_one else _at_worst(piece)
    is_one = bare in signs or (len(piece) <= _BLANKS and not piece.strip(piece[0]) and piece[0] in " \n")
    return 1 if is_one else _at_worst(piece)


def _likely(piece: str) -> float:
    bare = piece.removeprefix(" ")
    first = bare[:1]
    length = len(bare)
    if not first or first.isspace():
        return 0.75 if len(piece) == 1 else 1.0
    if not first.isascii():
        return 1.0 if first in _SINGLE else 1.1 if first > "\u2e7f" else 0.5
    if first.isdigit():
        return (len(piece) - length) + (length + 2) // 3
    if not first.isalpha():
        return 0.7 if length == 1 else 0.6 + 0.3 * length
    if length > 3 and bare[1].isupper():
        return 0.28 * length
    if _reads_like_a_word(bare):
        return 1.02 if length < 10 else 1.2 if length < 13 else 0.12 * length
    return 1.15 if length < 4 else max(1.2, 0.3 * length) if length < 9 else 0.42 * length


def _at_worst(piece: str) -> float:
    bare = piece.removeprefix(" ")
    first = bare[:1]
    length = len(bare)
    if not first or first.isspace():
        return 2 + len(piece) // 16 if _is_indent(piece) else len(piece.encode("utf-8")) + 1
    if not first.isascii():
        return 1 if first in _SINGLE else len(piece.encode("utf-8", "surrogatepass"))
    if first.isdigit():
        return (len(piece) - length) + (length + 2) // 3
    if not first.isalpha():
        return _signs_at_worst(piece, bare)
    if bare in _OWN:
        return 1
    if length < 3:
        return 1 if length == 1 or (bare.islower() and _reads_like_a_word(bare)) else 2
    if _reads_like_a_word(bare) and not bare[1].isupper():
        return (
            (1.2 if bare.islower() else 1.6)
            if length < 4
            else 1.5
            if length < 7
            else 1.9
            if length < 10
            else 0.24 * length
        )
    return 0.75 * length


def _signs_at_worst(piece: str, bare: str) -> int:
    """Give the most that signs cost: one token each, less where one stands twice in a row, for any such pair is one."""
    length = len(bare)
    if not piece.isprintable():
        return len(piece)  # a control character leaves the blank before it alone
    if not bare.strip(bare[0]):
        return length // 2 + 1 if len(piece) > length else (length + 1) // 2
    return length - 1 if len(piece) == length and _TWICE.search(bare) else length


def _is_indent(piece: str) -> bool:
    """Tell line ends alone, blanks alone, and the one before the other from any other mixture of white space."""
    return not piece.lstrip("\n").strip(" ")


def _reads_like_a_word(piece: str) -> bool:
    low = piece.lower()
    return all(after in _FOLLOWS[before] for before, after in pairwise(low))


class Room:
    """What is left of a number of tokens."""

    def __init__(self, tokens: float) -> None:
        self.left = tokens

    @classmethod
    def of_text(cls, tokens: int) -> Room:
        """Give the room that a whole text of so many tokens has."""
        return cls(tokens - SPARE - 1.0)

    def has(self, text: str) -> bool:
        """Tell whether there is room for a text."""
        # No text costs less than a token for sixteen characters.
        return len(text) <= 16 * max(0.0, self.left) and weight(text) + _LINE_END <= self.left

    def takes(self, text: str) -> bool:
        """Take a text if there is room for it."""
        if len(text) > 16 * max(0.0, self.left):
            return False
        cost = weight(text) + _LINE_END
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def part(self, share: float) -> Room:
        """Set a share of what is left aside; what it does not use is given `back`."""
        part = Room(self.left * share)
        self.left -= part.left
        return part

    def back(self, part: Room) -> None:
        """Take back what a part did not use."""
        self.left += part.left


# ---- The commonest words of prose and code, and signs: with them a text is measured closely. Counted in this project's
# and Python's own texts; each is one token of `o200k_base`, with a blank before it and without, with a capital and
# without (D51). A test holds them to it.

_COMMON: list[frozenset[str]] = []


def common() -> list[frozenset[str]]:
    """Give the words that are one token each, with those that are so in small letters alone, and signs of two or more.

    They are made when they are first asked for: estimates need none.
    """
    if not _COMMON:
        words = frozenset(_WORDS.split())
        _COMMON.extend((words, words.union(_SMALL.split()), frozenset(_SIGNS.split())))
    return _COMMON


_WORDS = """
aa ab abi able abort about above abs absolute abstract ac accept accepted access accessible according account act
action actions activate active actual actually ad adapter adaptive add added adding addition additional addr address
addresses adds adj adjust advance ae af after again against age agent agents agreement ahead ai alert algorithm
alias align alive all allocate allow allowed allows almost along alpha alphabet already also alt alternate
alternative although always am among amount amt an analyse analysis anchor and android angle angular animation ann
annotation anonymous another ans answer answers any anything apache apart api app append apple application
applications apply approval approved approx ar arch architect architecture archive archives are arg args argument
arguments arm around array arrays arrow article artifact as aside ask asked assert asset assets assign assigned
assignment assistant associated ast async at atomic attached attempt attr attribute attributes audio audit auth
authentication author authorization authors auto automatic available average avoid await away az ba back backend
background backup bad ball bar bare base based bases basic batch baz bb bd be beat because been before begin
behavior behind being below best beta better between bg big bin binary bind binding bit bits black blank blink blo
blob block blocking blocks blue body bold bom bool boolean boot bootstrap border both bottom bound boundary box boy
br brace branch break breaking brief bright bring broadcast broken browser bs budget buf buff buffer bug build
builder building built bullet bundle but button by byte bytes ca cache cached cal calc calculate calendar call
callback called caller calling calls can cancel candidate cannot canvas cap caps caption capture care case cases
cast cat catalog catch categories category cause cd ce cell cells cent center central cert certain certificate cf ch
chain challenge change changed changes changing channel channels char character characters charset check checked
checker checking checkout checks child children choice choices choose chr chunk cipher circle cl class classes clean
cleanup clear cli click client clock clone close closed closing closure cloud cm cmd co code codec codes coding col
collapse collect collection collections collector colon color colors column columns com combine combined come
command commands comment comments commit common comp compact compare comparison compat compatible compile compiler
complete completed completion complex component components compound compress compression compute computer cond
condition conditional conditions conf confidence config configuration configure confirm conn connect connected
connection connections consider console const constant constants constraint constraints construct construction
constructor consume cont container containers contains content contents context continue control controller controls
conv conversation conversion convert converted converter cookie cookies cool coordinates copies copy copyright core
correct cost could count counter counts cover coverage cp cr create created creates creating creation credentials
criteria criterion critical crop cross cs css csv ct cur curr current currently cursor custom cut cv cycle da dark
dash dat data database date dates day days db dc de dead deadline deal debug dec decimal decision decl declare
decode decoder deep def default defaults define defined defines definition definitions degrees del delay delete
deleted delta demo dep depend dependencies dependency depending depends deprecated depth derived desc describe
description descriptor design desired dest destination detail details detect dev developer development device
diagram dialog dict dictionary did die diff difference different digest digit dim dimensions dir direct direction
directive directory dirty dis disable disabled discussion disk dispatch display dist distance distributed
distribution div divide division dl do doc docs doctor document documentation documents does doing domain domains
don done dot double down download downloads draw drawing drive drop dry ds dt dual due dummy dump dup duplicate
duration during dw dynamic ea each early easy eb ec echo ed edge edit editable editor ee ef effect effective eg egg
either el elem element elements elf else email embedded emit emoji empty en enable enabled enc encode encoder
encoding end ending ends engine english ensure enter entity entries entry enum env environment ep epoch eq equal
equals err error errors es esc escape especially estimate et eval evaluate even event events ever every everything
ex exact example examples exc except exception exceptions exchange exclusive exec execute execution exist existing
exists exit exp expand expanded expect expected experimental explicit export expr express expression ext extend
extended extension extensions external extra extract extras fa face fact factor factory facts fail failed failure
fake fall false family far fast fatal fault fb fc fe feature features feed feedback fetch few fi field fields figure
file filename files fill filled filter filters final finally find finder finding fine finish finished first fish fit
fits fix fixed flag flags flat flatten float floating floor flow flush fn fold folder follow following font fonts
foo foot footer for force fore foreign forget fork form format formats formatter forms forward found foundation four
fr fraction fragment frame frames framework free freeze frequency fresh from front fs full fully fun func function
functions future gb ge gen general generate generated generation generator generic get gets getter getting gi gif
girl git github give given giving glob global globals go goal going gone good google got grammar graph graphics gray
greater green grey grid group groups guard guess gui guide hack had half hand handle handler handles handling hands
hard has hash have having he head header headers heading heap heart height held hello help helper helpers here hex
hi hidden hide high higher highest highlight hint history hit hits hl hold holder home homepage hook hooks hope
horizontal host hosts hour hours house how however hr html http human icon id idea ideal ident identifier identify
identity ie if ignore illegal image img immutable imp impl implement implementation import important imports in inc
include included includes including inclusive incoming incorrect increment index indicator individual inf infer info
information infos init initial initialize initialized inline inner input inputs insert inside inspect inst install
installation installed installer instance instances instantiate instead instruction instructions int integer
interaction interactive interesting interface interfaces internal internet interrupt interval into invalid invoke io
ip is iso issue issues it item items iter iterator its jan jar java javascript job join joined json jump just keep
keeping ken kernel key keyboard keys keyword keywords kill kind know known kr ks kw la label labels lambda lang
language languages large largest last late later latest latin launcher layer layout lazy le lead leading leaf least
leave ledger left legacy legal len length less let lets letter letters level levels lex lexer lib libraries library
license licensed life light like limit limited limits lin line linear lines link linked links linux list listed
listen listing lists literal little live ll ln lo load loaded loader loading loads loc local locale located location
locations locator lock locked locks log logger logging logic logical login logs long look looking looks lookup loop
lost lot lots low lower lt lv mac machine machines made mag magic mail main major make maker makes making man manage
managed manager mandatory manifest manual many map mapping maps margin mark markdown marker marks mask master match
matcher matches matching math matrix matter max maximum may maybe md me mean meaning means measure measurement media
median medium member members memo memory merge mess message messages met meta metadata meth method methods mi mid
middle mime min minimal minimum minor minus minute minutes misc missing mix mixed mm mo mock mod mode model models
modern modified modifier modify module modules moment mon month months moon more most mostly mount mouse move moves
ms msg mu much mul multi multipart multiple music must mutable my na name named names namespace nan native nb nc ne
near necessary need needed needs neg negative nest nested net network never new news next nm no node nodes non none
nor norm normal normalize normally not note notes nothing notice notify now ns nt null num number numbers numeric ob
obj object objects od odd of off office official offset often ok old older on once one only op opcode open opening
operand operation operations operator operators opt optimization option optional options or ord order ordered
ordering org orig origin original os other others otherwise our out outer outline output outputs outside over
overflow override overview own owner pa pack package packages packed packing pad padding page pager pages pair panel
para paragraph parallel param parameter parameters params parent parents parse parsed parser part partial partition
parts pass passed passing password past pat patch path paths patient pattern patterns pause payload pe peek peer pem
pen pending people pep per percent percentage perform performance perhaps period permission permissions permit
persistent person phase php phrase pi pick pictures piece pieces pipe pipeline pl place placeholder places plain
plan plans plat platform play playing please plugin plugins plus pod point pointer points policy poll poly polygon
pool pop popular populate population port portable pos position positions positive possible post potential pow power
pre prec precision pred predicate prefer preferences preferred prefix prepare prepared presence present pretty prev
prevent previous primary prime print printed printing prior priority private probably problem proc process
processing processor produce product profile prog program progress project projects prompt proper properties
property props proto protocol prototype provide provided provider proxy ps ptr public published pull pulse pure
purpose push put pv pw py python qo quad qualified quant query question questions queue quick quiet quit quite quote
quotes raise raised raises ran random range rank rate rather ratio raw rc rd re reach read reader reading reads
ready real really reason received recent recipe recommended record records recursive red redirect reduce ref refer
reference references reflect refresh regex region regional register registered registry regular reject rel related
relative release released reload remaining remember remote remove removed rename render rep repair repeat replace
replacement reply repo report reports repository represent representation req request requested requests require
required requirements requires res reserved reset resolution resolve resolver resource resources resp respect
response responses rest restore restricted result results resume ret retrieve retry return returned returns rev
reverse review revision rewrite rich right rights risk roman room root roots rotate round rounded routine routing
row rows rs rt ru ruby rule rules run runner running runs runtime rx safe salt same sample sandbox save saved say
scalar scale scan schema scheme scope score screen script scripts sd search sec second seconds secret section
sections secure security see seed seek seen seg segment select selected selection selector self send sending sense
sent sentence sep separator seq sequence series serve server servers service session sessions set sets setter
setting settings setup sh sha shape share shared shell shift ship shop short shot should show shows shutdown side
sig sigma sign signal signals signature signed silent similar simple since single singleton site sites six size
sizes sk skill skills skin skip sl slash slave sleep slice slot slots slow sm small smarty snapshot so sock socket
soft software solution some someone something sometimes soon sort sorted sorting source sources space spaces spam
span spawn spec special specific speed spinner split sql square sr src ss st stable stack stage stamp stand standard
standing star start started starting starts startup stat state statement states static statistics stats status stay
std stem step steps still stop storage store stored stores str strategy stream streams stretch strict strike string
strings strip strong struct structure structures stuff style styled styles sub subject submit subs subtitle success
successful such suite sum summary sun super support supported supports sure sv svg switch sym symbol symbols sync
syntax sys system systems tab table tables tabs tag tags tail take taken taking tar target targets task tasks tb td
te team tell temp template templates temporary term terminal terms test testing tests text th thai than that the
their them theme then there these they thing things think third this those though thought thread threads three
threshold through throw throws thus time timeout timer times timestamp title tk tl tmp to today todo tok token
tokens tone too tool tools top topic topics total tp tr trace track tracker tracking traditional transfer transform
transition translate translation translator transparent transport tree trigger trim true trust trusted try trying ts
tuple turn tutorial two txt typ type typed types typically ua ud uf uint un unable undefined under undo unexpected
unicode union unique unit units unix unknown unless unlock unsafe unsupported until up update updated updates
upgrade upon upper uri url us usage use used user username users uses using usually utf util utilities utility utils
val valid validate validation validator value values var variable variables variant vars ve vec vendor ver verb
verification verified verify version versions vertical very vi via videos view virtual visible visit visitor visual
void vs wait waiting walk walking want wanted warn warning was watch water way ways we weak web week weight welcome
well went were what whatever wheel when where whether which while white who whole why wide width wiki will win
window windows wish with within without woman won word words work worked worker workflow working works workspace
world worth would wr wrap wrapped wrapper write writer writes writing written wrong ws xa xe xml ye year years
yellow yes yet yield you your yu za zero zh zip zone
"""

# These are one token in small letters alone.
_SMALL = """
abc acceptable acct affected ahi aliases aligned allocated allocator alo alone ancestor anchors annotations ansi
answered appear appropriate approve arches aren argv ascii asking asks asm assemble assoc assuming attrs avail aware
backs baseline basename bash bc beats belongs bf bindings blah blocked bmp bounded bp branches buffers bugs builtin
bz callbacks came canonical capitalize caught cb cc ceil cfg chars checkpoint checksum chmod chosen chunks
classifier classname closest cls cmp cn cnt coded coeff comes comma communications compiled compressed computed
concat configs configured consistent constructed contain contained contexts continued coords covers cpp crc ctx cwd
cyan cycles cz daemon datetime dbg dbl dd decoded decorate defs delimiter dependent deps deque derive detach df dg
diag digits directories dirname dirs discard distinct django dll dm dn dots dp drv dst duplicates edges efficient
elapsed elif elt emin encoded encrypted ended entered eo erase errmsg errno escaped etc exclude excluded excluding
exe expects expired expires exports extends extent fails fallback fd feeding ff fg fh fifo filepath filesystem
filtered finite fires fmt fname folders fontsize forcing foreach foreground formatted formed formerly forth fp frac
freq ftp fullname gave gc gcc gd getline gettext gid gmail goto grep grp gsm gt gz gzip handled handlers hashed
haven hdr heard helps hh holders holds hostname href ht https identified ids idx iff ignored implemented implements
implicit implicitly indent indexes indices inflate inherit inherits initializer ino inp intend interp introduced
ints invert ipv issued italic iterate iteration jis jp jpeg jpg junk justify klass kwargs lack latex layouts lb lc
ld lf lh lhs libs licenses lies lifting likely limitations lint lm localhost localized locals loom loops lp ls lst
malloc mapped marked markers markup masked matched mentioned mentions merged might milliseconds mkdir mouth mv nbsp
nearest necessarily newline nf nl nonce normalized notation noun nowrap nti nums obsolete occur oid omit onclick
ones onto opa opaque opened opens operate optimized opts ordinal ordinary ours outfile overwrite owed paired pairs
panic particularly passes passwd patched pathname paused performed perl pickle pid pip pipes pkg placed plen plist
plural pm png portion possibly pp pragma prefs prepend preset printf prints processed proj prove pseudo puts pwd qp
qr qs quot quotation quoted qw raising ranges rb readonly reasonable recognized recv redo refs regexp remain renders
reported repr represented resent resolved restrict restriction retain retval reuse rf rgb rhs rm rng rollback rowing
rv rw said sanitize schemas searched secs segments selectors shall shoe shown simulate sizeof slug smtp snd spacing
specified spent spoken sprintf sqlite sqrt ssh ssl stands stash stata stderr stdin stdout stmt stood sts stylesheet
subset subst substr substring subtract suffix svn takes tear telling terminate terminated tested texts tg timestamps
timezone tls tm tn toc tpl tracked translated translations treated tries truncate tt tty turned typename typing tz
uff uid ulong uname unc undef underline underscore unfinished unlikely unlink unset unsigned unused unwrap uppercase
urllib urls usable usr usual utc uts uuid uv validated vals variance variants vary verbose verbosity vertices vim
visited vn vt warnings wb wd weekday weights wf whose wl writers www xb xc xd xf xor xr xs xx xxx xyz yaml yc zeros
"""

_SIGNS = r"""
!= "" "", "# "$ "% "' "( ") ")) "), "). ")[ ", "- "-- ". "/ ": "; "[ "\ "] "_ "{ "} ## ### $. && '#
') ', '. '{ '} (" ("\ (' (( ((_ () ()) (), (). (): (* ([ (_ (__ (` ({ )) ), ). ): ); )[ *( ** *, *.
*_ += -" -- --- ---- ----- --> -= -> ." .* ... ../ ./ /. // :" :", :- :. := :] <!-- << <= =" =( ==
={ >= ?, [" [' [( [- [: [[ [] []) [], [_ [{ \" ]) ], ]. ][ ]] _, __ __( `${ `. ``` {" {' {{ {} {})
{}, |\ || }) }, }. }: }; }\ }} ~/
"""
