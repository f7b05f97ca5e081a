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
    if not _CLOSE:
        _CLOSE.append(re.compile(f"(?<=[A-Za-z0-9])[_.][a-z]+|{_PIECES.pattern}"))
    return sum(map(_COSTS.__getitem__, _CLOSE[0].findall(text)))


_CLOSE: list[re.Pattern[str]] = []  # pieces of which a word may have a sign before it; made when it is first asked for


class _Costs(dict[str, float]):
    """What pieces cost at most, each found out once."""

    def __missing__(self, piece: str) -> float:
        cost = _known(piece)
        if len(piece) <= _KEPT:
            self[piece] = cost
        return cost


_COSTS = _Costs()


def _known(piece: str) -> float:
    joined, words, small_joined, small, signs = common()
    if len(piece) > 1 and piece[0] in "_." and piece[1].isalpha():
        return 1.1 if piece[1:] in joined or piece[1:] in small_joined else 1 + _known(piece[1:])
    bare = piece.removeprefix(" ")
    if bare.isalpha():
        # Without a blank before it a word may share a token with the sign there, and be cut elsewhere.
        low = bare.lower() if bare.istitle() else bare
        is_one = low in joined or low in words or bare in small_joined or bare in small
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
    """Give the words that are one token each, then those that are so in small letters alone, and signs of two or more.

    Of both words the first set are those that are one token together with a `_` or `.` before them. They are made when
    they are first asked for: estimates need none.
    """
    if not _COMMON:
        _COMMON.extend(frozenset(block.split()) for block in (_JOINED, _WORDS, _SMALL_JOINED, _SMALL, _SIGNS))
    return _COMMON


# These are one token behind `_` or `.`, too: in an identifier, in a file's name.
_JOINED = """
ab abort about abs absolute ac accept access account act action actions activate active actual ad adapter add addr
address adjust af after age agent ai alert algorithm alias align all allocate allow allowed alpha alt am amount an
analysis anchor and android angle animation annotation answer answers any api app append application apply ar arch
archive are arg args argument arguments arm array arrow article as assert asset assets assign assignment ast async at
atomic attr attribute attributes audio auth author auto available average back backend background bad ball bar base
basic batch bb bd be before begin best beta bg big bin binary bind binding bit bits black blank block blocks blue body
bool boolean boot border bottom bound box br branch break browser bs buf buff buffer build builder bundle button by byte
bytes ca cache cached cal calc calendar call callback called calls can cancel canvas cap caption capture case cast cat
catalog categories category cd ce cell cells cent center cert cf ch chain change changed channel channels char character
charset check checked checkout child children choice choose chunk circle cl class classes clean cleanup clear cli click
client clock clone close closed cloud cm cmd co code codec codes col collect collection color colors column columns com
command commands comment comments commit common comp compare compile complete completed component components compute
condition conditions conf config configuration confirm conn connect connected connection connections console const
constant constants constraint constraints construct constructor cont container contains content contents context control
controller controls conv convert converter cookie coordinates copy core correct cost count counter cover cp cr create
created creation credentials crop cross cs css csv ct cur curr current cursor custom cut cv da dark dat data database
date day days db dc de dead debug dec decode decoder def default defaults define definition del delay delete deleted
delta demo dep dependencies depth desc description design dest destination detail details detect dev device dialog dict
dictionary diff digest dim dir direct direction directory dis disable disabled disk dispatch display dist distance div
do doc docs document documents domain done dot double down download draw drive drop ds dt dump duration dw dynamic each
easy ec echo ed edge edit editor effect el elem element elements email emit empty en enable enabled enc encode encoder
encoding end engine enter entity entries entry enum env environment ep eq equal equals err error errors es escape et
eval event events every ex example examples exc exception exchange exec execute execution exist exists exit exp expand
expect expected export expr expression ext extend extension extensions external extra extract face fact factor factory
fail failed failure fake false family fast fb fc fe feature features feed feedback fetch field fields file filename
files fill filter filters final find finish finished first fit fix fixed flag flags flat float floor flow flush fn fold
folder follow font footer for force fore form format forms forward fr fragment frame frames framework free frequency
from front fs full fun func function functions future ge gen general generate generated generator generic get git global
go goal good google graph gray green grid group groups guard gui hand handle handler has hash have he head header
headers heading heap height help helper helpers hex hidden hide high history hit home horizontal host hour hours house
hr html http icon id ident identifier identity ie if ignore image img imp impl import in inc include increment index inf
info init initial initialize inline inner input inputs insert inst install instance instances int integer interface
interfaces internal interval into invalid io ip is iso issue it item items iter iterator java job join json jump keep
kernel key keyboard keys keyword kind kw la label labels lambda lang language languages large last latest layer layout
lazy le leave left len length less level lib library light like limit lin line linear lines link links list literal live
ll lo load loaded loader loading loc local locale location locations lock log logger logging logic login logs long
lookup loop low lower lt lv mac machine mag magic mail main major make man manage manager manual map mapping maps margin
mark marker mask master match matches math matrix max md me mean measure media medium member members memory merge
message messages met meta metadata method methods mid middle min minus minutes misc mix mm mock mod mode model models
modified modify module modules mon month more mount mouse move moves ms msg mu mul multi music my na name named names
namespace nan native nb nc ne need neg net network new news next no node nodes non none norm normal not note notes
notice notify now ns nt null num number numeric ob obj object objects od of off offset ok old on once one only op open
operation operations operator opt option optional options or order org orig origin original os other out outer output
outputs over override owner pa pack package pad padding page pages panel parallel param parameter parameters params
parent parse parser part partial partition parts pass password patch path paths patient pattern pause payload pe peer
pen pending people per percent period permission permissions person phase php pi pick pipe pipeline pl place placeholder
plan platform play plugin plugins plus point pointer points policy poll poly pool pop population port pos position
positions post pow power pre prec pred preferences prefix prepare present prev previous primary print priority private
problem proc process processing processor product profile program progress project projects prompt properties property
props proto protocol provider proxy ps ptr public pull push put py python quant query question questions queue quote
raise random range rank rate raw rc rd re read reader ready real reason recipe record records red redirect reduce ref
reference refresh regex region register registry rel related relative release reload remaining remote remove render rep
repeat replace reply repo report repository req request requests require required requires res reset resource resources
response rest restore result results resume ret retry return rev reverse review right room root rotate round row rows rs
rt ru rule rules run runner running runtime rx safe same sample save saved scalar scale scan schema scheme scope score
screen script sd search sec second seconds secret section sections security seed seek seg segment select selected
selection selector self send sent sep separator seq sequence series server service session sessions set setting settings
setup sh sha shape share shared shell shift ship shop short should show shutdown side sig sign signal signature simple
single site size sk skill skin skip sl sleep slice slot sm small snapshot so sock socket soft solution some sort sorted
source sources space span spawn spec special speed spinner split sql square src ss st stack stage standard star start
started stat state statement states static statistics stats status std step steps stop storage store str strategy stream
string strip struct structure style styles sub subject submit success sum summary super support svg switch sym symbol
sync sys system tab table tables tabs tag tags tail take tar target targets task tasks tb te team temp template
templates term test testing tests text th the theme then this thread threshold throw time timeout timer times timestamp
title tmp to today token tokens tool tools top topic total tp tr trace track transfer transform transition translate
translation transport tree trigger trim true try ts turn two txt typ type types ud uint un union unique unit units
unlock until up update updated upper uri url us use used user username users util utils val valid validate validation
validator value values var variable variables variant vars vec vendor ver verify version vertical vi view virtual
visible visit visual wait walk warn warning watch water we web week weight when where white width win window windows
with word words work worker workspace world wrap wrapper write writer ws xml year you zero zip zone
"""

_WORDS = """
aa abi able above abstract accepted accessible according actually adaptive added adding addition additional addresses
adds adj advance ae again against agents agreement ahead alive allows almost along alphabet already also alternate
alternative although always among amt analyse angular ann anonymous another ans anything apache apart apple applications
approval approved approx architect architecture archives around arrays artifact aside ask asked assigned assistant
associated attached attempt audit authentication authorization authors automatic avoid await away az ba backup bare
based bases baz beat because been behavior behind being below better between blink blo blob blocking bold bom bootstrap
both boundary boy brace breaking brief bright bring broadcast broken budget bug building built bullet but calculate
caller calling candidate cannot caps care cases catch cause central certain certificate challenge changes changing
characters checker checking checks choices chr cipher closing closure coding collapse collections collector colon
combine combined come compact comparison compat compatible compiler completion complex compound compress compression
computer cond conditional confidence configure consider construction consume containers continue conversation conversion
converted cookies cool copies copyright could counts coverage creates creating criteria criterion critical currently
cycle dash dates deadline deal decimal decision decl declare deep defined defines definitions degrees depend dependency
depending depends deprecated derived describe descriptor desired developer development diagram did die difference
different digit dimensions directive dirty discussion distributed distribution divide division dl doctor documentation
does doing domains don downloads drawing dry dual due dummy dup duplicate during ea early eb editable ee ef effective eg
egg either elf else embedded emoji ending ends english ensure epoch esc especially estimate evaluate even ever
everything exact except exceptions exclusive existing expanded experimental explicit express extended extras fa facts
fall far fatal fault few fi figure filled finally finder finding fine fish fits flatten floating following fonts foo
foot foreign forget fork formats formatter found foundation four fraction freeze fresh fully gb generation gets getter
getting gi gif girl github give given giving glob globals going gone got grammar graphics greater grey guess guide hack
had half handles handling hands hard having heart held hello here hi higher highest highlight hint hits hl hold holder
homepage hook hooks hope hosts how however human idea ideal identify illegal immutable implement implementation
important imports included includes including inclusive incoming incorrect indicator individual infer information infos
initialized inside inspect installation installed installer instantiate instead instruction instructions interaction
interactive interesting internet interrupt invoke issues its jan jar javascript joined just keeping ken keywords kill
know known kr ks largest late later latin launcher lead leading leaf least ledger legacy legal let lets letter letters
levels lex lexer libraries license licensed life limited limits linked linux listed listen listing lists little ln loads
located locator locked locks logical look looking looks lost lot lots machines made maker makes making managed mandatory
manifest many markdown marks matcher matching matter maximum may maybe meaning means measurement median memo mess meth
mi mime minimal minimum minor minute missing mixed mo modern modifier moment months moon most mostly much multipart
multiple must mutable near necessary needed needs negative nest nested never nm nor normalize normally nothing numbers
odd office official often older opcode opening operand operators optimization ord ordered ordering others otherwise our
outline outside overflow overview own packages packed packing pager pair para paragraph parents parsed passed passing
past pat patterns peek pem pep percentage perform performance perhaps permit persistent phrase pictures piece pieces
places plain plans plat playing please pod polygon popular populate portable positive possible potential precision
predicate prefer preferred prepared presence pretty prevent prime printed printing prior probably produce prog proper
prototype provide provided published pulse pure purpose pv pw qo quad qualified quick quiet quit quite quotes raised
raises ran rather ratio reach reading reads really received recent recommended recursive refer references reflect
regional registered regular reject released remember removed rename repair replacement reports represent representation
requested requirements reserved resolution resolve resolver resp respect responses restricted retrieve returned returns
revision rewrite rich rights risk roman roots rounded routine routing ruby runs salt sandbox say scripts secure see seen
sending sense sentence serve servers sets setter shot shows sigma signals signed silent similar since singleton sites
six sizes skills slash slave slots slow smarty software someone something sometimes soon sorting spaces spam specific sr
stable stamp stand standing starting starts startup stay stem still stored stores streams stretch strict strike strings
strong structures stuff styled subs subtitle successful such suite sun supported supports sure sv symbols syntax systems
taken taking td tell temporary terminal terms thai than that their them there these they thing things think third those
though thought threads three through throws thus tk tl todo tok tone too topics tracker tracking traditional translator
transparent trust trusted trying tuple tutorial typed typically ua uf unable undefined under undo unexpected unicode
unix unknown unless unsafe unsupported updates upgrade upon usage uses using usually utf utilities utility ve verb
verification verified versions very via videos visitor void vs waiting walking want wanted was way ways weak welcome
well went were what whatever wheel whether which while who whole why wide wiki will wish within without woman won worked
workflow working works worth would wr wrapped writes writing written wrong xa xe ye years yellow yes yet yield your yu
za zh
"""

# These are one token in small letters alone.
_SMALL_JOINED = """
annotations attrs bc bp callbacks cb cc cfg cls cn concat coords cpp ctx datetime dd df dm dp dst edges elapsed exports
fd ff filtered fp freq gc grp gt handlers hostname href ht ids idx indices lb ld lp lst mv opts pid pkg pm png pp printf
rb recv refs rf rgb rm slug spacing ssl stdout tm tpl tt uid urls uuid verbose vertices weights www xyz yaml
"""

_SMALL = """
abc acceptable acct affected ahi aliases aligned allocated allocator alo alone ancestor anchors ansi answered appear
appropriate approve arches aren argv ascii asking asks asm assemble assoc assuming avail aware backs baseline basename
bash beats belongs bf bindings blah blocked bmp bounded branches buffers bugs builtin bz came canonical capitalize
caught ceil chars checkpoint checksum chmod chosen chunks classifier classname closest cmp cnt coded coeff comes comma
communications compiled compressed computed configs configured consistent constructed contain contained contexts
continued covers crc cwd cyan cycles cz daemon dbg dbl decoded decorate defs delimiter dependent deps deque derive
detach dg diag digits directories dirname dirs discard distinct django dll dn dots drv duplicates efficient elif elt
emin encoded encrypted ended entered eo erase errmsg errno escaped etc exclude excluded excluding exe expects expired
expires extends extent fails fallback feeding fg fh fifo filepath filesystem finite fires fmt fname folders fontsize
forcing foreach foreground formatted formed formerly forth frac ftp fullname gave gcc gd getline gettext gid gmail goto
grep gsm gz gzip handled hashed haven hdr heard helps hh holders holds https identified iff ignored implemented
implements implicit implicitly indent indexes inflate inherit inherits initializer ino inp intend interp introduced ints
invert ipv issued italic iterate iteration jis jp jpeg jpg junk justify klass kwargs lack latex layouts lc lf lh lhs
libs licenses lies lifting likely limitations lint lm localhost localized locals loom loops ls malloc mapped marked
markers markup masked matched mentioned mentions merged might milliseconds mkdir mouth nbsp nearest necessarily newline
nf nl nonce normalized notation noun nowrap nti nums obsolete occur oid omit onclick ones onto opa opaque opened opens
operate optimized ordinal ordinary ours outfile overwrite owed paired pairs panic particularly passes passwd patched
pathname paused performed perl pickle pip pipes placed plen plist plural portion possibly pragma prefs prepend preset
prints processed proj prove pseudo puts pwd qp qr qs quot quotation quoted qw raising ranges readonly reasonable
recognized redo regexp remain renders reported repr represented resent resolved restrict restriction retain retval reuse
rhs rng rollback rowing rv rw said sanitize schemas searched secs segments selectors shall shoe shown simulate sizeof
smtp snd specified spent spoken sprintf sqlite sqrt ssh stands stash stata stderr stdin stmt stood sts stylesheet subset
subst substr substring subtract suffix svn takes tear telling terminate terminated tested texts tg timestamps timezone
tls tn toc tracked translated translations treated tries truncate tty turned typename typing tz uff ulong uname unc
undef underline underscore unfinished unlikely unlink unset unsigned unused unwrap uppercase urllib usable usr usual utc
uts uv validated vals variance variants vary verbosity vim visited vn vt warnings wb wd weekday wf whose wl writers xb
xc xd xf xor xr xs xx xxx yc zeros
"""

_SIGNS = r"""
!= "" "", "# "$ "% "' "( ") ")) "), "). ")[ ", "- "-- ". "/ ": "; "[ "\ "] "_ "{ "} ## ### $. && '#
') ', '. '{ '} (" ("\ (' (( ((_ () ()) (), (). (): (* ([ (_ (__ (` ({ )) ), ). ): ); )[ *( ** *, *.
*_ += -" -- --- ---- ----- --> -= -> ." .* ... ../ ./ /. // :" :", :- :. := :] <!-- << <= =" =( ==
={ >= ?, [" [' [( [- [: [[ [] []) [], [_ [{ \" ]) ], ]. ][ ]] _, __ __( `${ `. ``` {" {' {{ {} {})
{}, |\ || }) }, }. }: }; }\ }} ~/
"""
