"""The commonest words of prose and code, each one token: with them a text is measured closely.

Counted in this project's and Python's own texts; each is one token of `o200k_base`, with a blank before it and
without, with a capital and without (D51). A test holds them to it.
"""

from __future__ import annotations

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
WORDS = frozenset(_WORDS.split())

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
SMALL = WORDS.union(_SMALL.split())
"""These, and words that are one token in small letters alone."""

_SIGNS = r"""
!= "" "", "# "$ "% "' "( ") ")) "), "). ")[ ", "- "-- ". "/ ": "; "[ "\ "] "_ "{ "} ## ### $. && '#
') ', '. '{ '} (" ("\ (' (( ((_ () ()) (), (). (): (* ([ (_ (__ (` ({ )) ), ). ): ); )[ *( ** *, *.
*_ += -" -- --- ---- ----- --> -= -> ." .* ... ../ ./ /. // :" :", :- :. := :] <!-- << <= =" =( ==
={ >= ?, [" [' [( [- [: [[ [] []) [], [_ [{ \" ]) ], ]. ][ ]] _, __ __( `${ `. ``` {" {' {{ {} {})
{}, |\ || }) }, }. }: }; }\ }} ~/
"""
SIGNS = frozenset(_SIGNS.split())
"""The same of signs of two or more."""
