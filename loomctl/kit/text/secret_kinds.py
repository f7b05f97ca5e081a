"""The tokens that say what they are: a table, each row with its kind, what it looks like, and what only looks like it.

A row: kind; how the token begins; the pattern of what follows; an example of that; a text that is none. In an example
`<w20>` stands for 20 random characters: w letters and digits, u capitals and digits, h hexadecimal, d digits, l small
letters and digits, b base64. So the table holds no key. Beginnings are of letters, digits, `_`, `.` and `-` alone,
which no encoding escapes. A pattern fails within its minimal length or takes all that it has looked at, so that no
character is looked at again and again. Private keys, which are no single token, are found by their marks.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENS = (
    ("aws access key", ("AKIA", "ASIA"), r"[A-Z0-9]{16}(?![A-Za-z0-9])", "<u16>", "AKIAGARAS is a place"),
    (
        *("signed address", ("X-Amz-Signature", "X-Goog-Signature"), r"=[0-9a-fA-F]{64,}"),
        *("=<h64>", "X-Amz-Signature=hex-of-the-signature"),
    ),
    (
        *("signed address", ("X-Amz-Security-Token",), r"=[A-Za-z0-9+/_-]{40,}=*"),
        *("=<w80>", "X-Amz-Security-Token=the-token"),
    ),
    ("signed address", ("Signature",), r"=[A-Za-z0-9~+/_-]{40,}=*", "=<w86>", "Signature=inspect.signature(function)"),
    (
        "azure signature",
        ("sig",),
        r"=[A-Za-z0-9+/_-]{40,}=*",
        "=<w43>=",
        "sig=signal.SIGTERM, handler=stop",
    ),
    ("bedrock key", ("ABSK",), r"[A-Za-z0-9+/]{60,}=*", "<w120>", "ABSKIPPED_IN_THE_TEST_OF_TODAY"),
    ("github token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{30,}", "<w36>", "ghp_begins_one"),
    ("github token", ("github_pat_",), r"[A-Za-z0-9_]{30,}", "<w22>_<w59>", "github_pat_of_the_user"),
    (
        "gitlab token",
        (
            *("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glagent-", "gloas-", "glsoat-", "glft-", "glimt-"),
            *("glffct-", "glrtr-", "glwt-", "GR1348941"),
        ),
        r"[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]+)*",
        *("<w20>", "glpat-your-token"),
    ),
    (
        "slack token",
        (
            *("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.xoxb-", "xoxe.xoxp-"),
            *("xoxo-", "xoxp-", "xoxr-", "xoxs-"),
        ),
        r"[A-Za-z0-9+/=_-]{16,}",
        *("<d12>-<d12>-<w24>", "xoxb-your-token"),
    ),
    ("slack token", ("xapp-",), r"[0-9][A-Za-z0-9-]{16,}", "1-<u11>-<d13>-<h64>", "xapp-is-the-name-of-an-application"),
    (
        *("webhook", ("hooks.slack.com",), r"/(?:services|workflows|triggers)/[A-Za-z0-9_/-]{20,}"),
        *("/services/T<u8>/B<u8>/<w24>", "https://hooks.slack.com/services/about"),
    ),
    (
        *("webhook", ("discord.com", "discordapp.com"), r"/api/webhooks/[A-Za-z0-9_/-]{20,}"),
        *("/api/webhooks/<d18>/<w68>", "https://discord.com/api/webhooks/docs"),
    ),
    (
        *("webhook", ("webhook.office.com",), r"/webhookb2/[A-Za-z0-9@/-]{40,}"),
        *("/webhookb2/<h36>@<h36>/IncomingWebhook/<h32>/<h36>", "https://x.webhook.office.com/webhookb2/docs"),
    ),
    (
        "stripe key",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_"),
        r"[A-Za-z0-9]{16,}",
        "<w24>",
        "sk_test_payment",
    ),
    ("stripe key", ("whsec_",), r"[A-Za-z0-9+/]{24,}=*", "<w32>", "whsec_begins_one"),
    ("anthropic key", ("sk-ant-",), r"[A-Za-z0-9_-]{20,}", "api03-<w93>", "sk-ant-your-key"),
    ("openai key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), r"[A-Za-z0-9_-]{20,}", "<w64>", "sk-proj-your-key"),
    # OpenAI's older keys, OpenRouter, DeepSeek and more: secrets._told_apart.
    ("api key", ("sk-",), r"[A-Za-z0-9_-]{20,}", "<w48>", ".sk-fading-circle-loading-animation {}"),
    ("google api key", ("AIza",), r"[A-Za-z0-9_-]{30,}", "<w35>", "AIza begins a key of Google's"),
    ("google client secret", ("GOCSPX-",), r"[A-Za-z0-9_-]{20,}", "<w28>", "GOCSPX-your-secret"),
    ("google token", ("ya29.",), r"[A-Za-z0-9_-]{20,}", "<w60>", "ya29.your-token"),
    ("google hmac key", ("GOOG1E",), r"[A-Z0-9]{50,}", "<u55>", "GOOG1EXAMPLE"),
    ("alibaba key", ("LTAI",), r"[A-Za-z0-9]{12,24}(?![A-Za-z0-9_-])", "<w12>", "LTAI5 begins a key of Alibaba's"),
    ("tencent key", ("AKID",), r"[A-Za-z0-9]{32}(?![A-Za-z0-9])", "<w32>", "AKID begins a key of Tencent's"),
    ("cloudflare token", ("cfut_", "cfat_", "cfk_"), r"[A-Za-z0-9_-]{36,}", "<w40>", "cfut_begins_one"),
    ("nvidia key", ("nvapi-",), r"[A-Za-z0-9_-]{40,}", "<w64>", "nvapi-is-the-name-of-a-package-for-nvidia"),
    ("npm token", ("npm_",), r"[A-Za-z0-9]{30,}", "<w36>", "npm_package_devDependencies_typescript"),
    ("pypi token", ("pypi-AgE",), r"[A-Za-z0-9_-]{40,}", "IcHlwaS5vcmc<w120>", "pypi-AgE begins a token"),
    ("hugging face token", ("hf_", "api_org_"), r"[A-Za-z0-9]{30,}", "<w34>", "hf_hub_download_of_a_large_model"),
    (
        "sendgrid key",
        ("SG.",),
        r"[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{30,}",
        "<w22>.<w43>",
        "SG.settings.read_all",
    ),
    (
        "brevo key",
        ("xkeysib-", "xsmtpsib-"),
        r"[0-9a-f]{40,}(?:-[A-Za-z0-9]+)?",
        "<h64>-<w16>",
        "xkeysib-your-key",
    ),
    ("digitalocean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{40,}", "<h64>", "dop_v1_begins_one"),
    ("databricks token", ("dapi",), r"[0-9a-f]{32}(?![A-Za-z0-9])", "<h32>", "dapifunctionsandtheirparameters"),
    (
        "shopify token",
        ("shpat_", "shpca_", "shppa_", "shpss_"),
        r"[0-9a-fA-F]{30,}",
        "<h32>",
        "shpat_begins_one",
    ),
    ("docker token", ("dckr_pat_", "dckr_oat_"), r"[A-Za-z0-9_-]{20,}", "<w27>", "dckr_pat_of_bob"),
    ("docker token", ("SWMTKN-1-",), r"[a-z0-9]{40,}-[a-z0-9]{20,}", "<l50>-<l25>", "SWMTKN-1-the-token-of-a-swarm"),
    ("atlassian token", ("ATATT3", "ATCTT3"), r"[A-Za-z0-9_=-]{40,}", "xFfGF0<w170>", "ATATT3 begins a token"),
    ("linear key", ("lin_api_", "lin_oauth_"), r"[A-Za-z0-9]{30,}", "<w40>", "lin_api_begins_one"),
    ("notion token", ("ntn_",), r"[A-Za-z0-9]{40,}", "<w46>", "ntn_begins_one"),
    ("vault token", ("hvs.", "hvb."), r"[A-Za-z0-9_-]{20,}", "<w90>", "hvs.your-token"),
    ("groq key", ("gsk_",), r"[A-Za-z0-9]{40,}", "<w52>", "gsk_begins_one"),
    ("xai key", ("xai-",), r"[A-Za-z0-9]{40,}", "<w80>", "xai-explains-a-model-to-you"),
    ("tailscale key", ("tskey-",), r"[A-Za-z0-9-]{20,}", "auth-<w11>-<w32>", "tskey-your-key"),
    ("grafana token", ("glsa_", "glc_"), r"[A-Za-z0-9_+/=]{30,}", "<w32>_<h8>", "glsa_of_the_service"),
    ("rubygems key", ("rubygems_",), r"[0-9a-f]{40,}", "<h48>", "rubygems_version_and_dependencies"),
    ("postman key", ("PMAK-",), r"[0-9a-f-]{40,}", "<h24>-<h34>", "PMAK-begins-one"),
    ("twilio key", ("SK", "AC"), r"[0-9a-f]{32}(?![A-Za-z0-9])", "<h32>", "ACCESSED_BY_ALL_OF_THEM"),
    ("mailgun key", ("key-",), r"[0-9a-f]{32}(?![A-Za-z0-9])", "<h32>", "key-value-pairs-in-order-of-age"),
    ("square token", ("sq0atp-", "sq0csp-"), r"[A-Za-z0-9_-]{22,}", "<w22>", "sq0atp-your-token"),
    ("heroku key", ("HRKU-",), r"[A-Za-z0-9_-]{30,}", "<h8>-<h4>-<h4>-<h4>-<h12>", "HRKU-your-key"),
    ("new relic key", ("NRAK-",), r"[A-Z0-9]{27,}", "<u27>", "NRAK-begins-one"),
    ("sentry token", ("sntrys_", "sntryu_"), r"[A-Za-z0-9+/=_-]{40,}", "<w64>", "sntrys_begins_one"),
    ("supabase token", ("sbp_",), r"[0-9a-f]{40,}", "<h40>", "sbp_begins_one"),
    ("neon password", ("npg_",), r"[A-Za-z0-9]{12,}(?![A-Za-z0-9_])", "<w12>", "npg_connection_of_the_pool"),
    (
        *("planetscale token", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_")),
        *(r"[A-Za-z0-9_-]{30,}(?:\.[A-Za-z0-9_-]+)*", "<w43>", "pscale_tkn_begins_one"),
    ),
    (
        "doppler token",
        ("dp.pt.", "dp.ct.", "dp.st."),
        r"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}",
        "<w43>",
        "dp.pt.name",
    ),
    ("fly token", ("fm2_", "fm1r_", "fm1a_", "fo1_"), r"[A-Za-z0-9+/=_-]{40,}", "<w100>", "fm2_begins_one"),
    ("figma token", ("figd_",), r"[A-Za-z0-9_-]{36,}", "<w40>", "figd_begins_one"),
    ("perplexity key", ("pplx-",), r"[A-Za-z0-9]{40,}", "<w48>", "pplx-begins-one"),
    ("replicate token", ("r8_",), r"[A-Za-z0-9]{37,}", "<w37>", "r8_begins_one"),
    (
        "langsmith key",
        ("lsv2_pt_", "lsv2_sk_"),
        r"[0-9a-f]{32}_[0-9a-f]{10}",
        "<h32>_<h10>",
        "lsv2_pt_begins_one",
    ),
    ("netlify token", ("nfp_",), r"[A-Za-z0-9]{36,}", "<w36>", "nfp_begins_one"),
    ("pulumi token", ("pul-",), r"[0-9a-f]{40}(?![A-Za-z0-9])", "<h40>", "pul-begins-one"),
    ("circleci token", ("CCIPAT_",), r"[A-Za-z0-9_]{40,}", "<w22>_<h40>", "CCIPAT_begins_one"),
    ("buildkite token", ("bkua_",), r"[0-9a-f]{30,}", "<h40>", "bkua_begins_one"),
    (
        "dynatrace token",
        ("dt0c01.", "dt0s01."),
        r"[A-Z0-9]{24}\.[A-Z0-9]{40,}",
        "<u24>.<u64>",
        "dt0c01.begins_one",
    ),
    ("1password token", ("ops_eyJ",), r"[A-Za-z0-9_-]{60,}=*", "<w250>", "ops_eyJ begins a token of 1Password's"),
    ("hubspot token", ("pat-na1-", "pat-eu1-"), r"[0-9a-f-]{36}", "<h8>-<h4>-<h4>-<h4>-<h12>", "pat-na1-your-token"),
    ("sourcegraph token", ("sgp_",), r"[A-Za-z0-9_]{40,}", "<h40>", "sgp_begins_one"),
    ("sonar token", ("squ_", "sqp_", "sqa_"), r"[0-9a-f]{40}(?![A-Za-z0-9])", "<h40>", "squ_begins_one"),
    ("contentful token", ("CFPAT-",), r"[A-Za-z0-9_-]{40,}", "<w43>", "CFPAT-begins-one"),
    ("artifactory key", ("AKCp",), r"[A-Za-z0-9]{60,}", "<w69>", "AKCp begins a key of Artifactory's"),
    ("pinecone key", ("pcsk_",), r"[A-Za-z0-9_]{40,}", "<w70>", "pcsk_begins_one"),
    ("tavily key", ("tvly-",), r"(?:dev-|prod-)?[A-Za-z0-9]{28,}", "<w32>", "tvly-begins-one"),
    ("posthog key", ("phx_",), r"[A-Za-z0-9]{40,}", "<w43>", "phx_begins_one"),
    ("age key", ("AGE-SECRET-KEY-1",), r"[A-Z0-9]{50,}", "<u58>", "AGE-SECRET-KEY-1 begins a key of age's"),
    # Two or more dots make a JSON Web Token of what else is some JSON in base64: secrets._told_apart.
    (
        *("json web token", ("eyJ",)),
        r"[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){0,2})?",
        *("<w33>.eyJ<w60>.<w43>", "//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozfQ"),
    ),
)

# Tokens with a sign of their own in their middle: their kind, what stands before it, the sign, what follows, an example
# of all of it, and a text that holds none.
AROUND_A_SIGN = (
    (
        *(
            "telegram token",
            r"(?:(?<![A-Za-z0-9])|(?<=/bot))[0-9]{6,12}\Z",
            ":AA",
            r"[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",
        ),
        *("<d10>:AA<w33>", "12345678:AAis-not-of-the-right-length"),
    ),
    (
        *("azure secret", r"(?<![A-Za-z0-9])[A-Za-z0-9_~.-]{3}[0-9]\Z", "Q~", r"[A-Za-z0-9_~.-]{31,34}"),
        *("<w3>8Q~<w34>", "abc8Q~def"),
    ),
    (
        *("terraform token", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\Z", ".atlasv1.", r"[A-Za-z0-9_=-]{60,}"),
        *("<w14>.atlasv1.<w67>", "the .atlasv1. in the middle"),
    ),
    (
        *("mailchimp key", r"(?<![A-Za-z0-9])[0-9a-f]{32}\Z", "-us", r"[0-9]{1,2}(?![A-Za-z0-9])"),
        *("<h32>-us12", "what-usually-uses-us12 and d41d8cd98f-us2"),
    ),
)
DISCORD = r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.([A-Za-z0-9_-]{27,40})(?![A-Za-z0-9_-])"

# Commands that are given a password among their options: their names, the option with what may stand before the value,
# an example whose value is `hunter22`, and a text that holds none.
COMMANDS = (
    (
        *("curl ", r"(?:-u|--(?:proxy-)?user)[ =]?[\"']?[^\s:\"']{0,256}:"),
        *("curl -sS -u bob:hunter22 x.org", 'curl -u "$USER:$PASS" x; curl -u user:password x'),
    ),
    ("sshpass ", r"(?<=sshpass )-p[ ]?[\"']?", "sshpass -p hunter22 ssh h", "sshpass -p $PASSWORD ssh h"),
    ("mysql ", r"-p[\"']?(?=\S*[0-9])", "mysql -u root -phunter22 shop", "mysql -p -h x; mysql -pass"),
    ("mysqldump ", r"-p[\"']?(?=\S*[0-9])", "mysqldump -phunter22 shop", "mysqldump -p shop"),
    ("docker login ", r"-p[ =]?[\"']?", "docker login -u bob -p hunter22", "docker login -u bob -p $PASSWORD"),
    ("redis-cli ", r"-a[ ][\"']?", "redis-cli -h x -a hunter22 ping", "redis-cli -h x -a $REDIS_PASS ping"),
)


_MARK = (
    r"-{4,5} ?(BEGIN|END)[ +](?:[A-Z0-9]{1,20}[ +]){0,4}PRIVATE[ +]KEY(?:[ +]BLOCK)? ?-{4,5}"
    r"|Private-Lines: [0-9]{1,4}(?=\r?\n)"
)


_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


_RUN = r"[A-Za-z0-9+/=]{16,}"


_RUNS = r"[ \t\"']{0,9}[A-Za-z0-9+/=]{16,}(?:[ \t]{1,4}[A-Za-z0-9+/=]{4,})*"


_QUOTED_END = r"[ \t]{0,40}([A-Za-z0-9+/=]{1,256})[\"'`]"


_QUOTES = ('"', "'", "`")


_LARGEST = 64 << 10


_LONGEST_LINE = 512


_BLANK = " \t\r\n\"'`,;\\"


_IN_BASE64 = "LS0tLS1CRUdJTi"  # the first mark's beginning


def private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """Find where the letters of each private key begin and end; all lines between them are part of it."""
    if "PRIVATE" in text or "Private-Lines" in text:
        import re  # most texts have nothing to look at

        marks = [*re.compile(_MARK).finditer(text)]
        before = 0  # where what no other mark has taken begins
        for number, mark in enumerate(marks):
            following = marks[number + 1] if number + 1 < len(marks) else None
            until = following.start() if following else len(text)
            if mark[1] != "END":
                start, end = mark.end(), until
                if not following or following[1] != "END" or not _is_mostly_key(text, start, end):
                    start, end = _lines_after(text, mark.start(), mark.end(), until)
            else:
                start, end = _lines_before(text, before, mark.start())
            before = mark.end() if mark[1] == "END" else end
            if start < end:
                inside = text[start:end]
                yield end - len(inside.lstrip()), start + len(inside.rstrip()), "private key"
    at = text.find(_IN_BASE64)
    while at >= 0:
        end = at + len(_IN_BASE64)
        if _is_private(text[at : at + 76]):
            _, end = _lines_after(text, at, at, len(text))
            yield at, end, "private key"
        at = text.find(_IN_BASE64, end)


def _is_mostly_key(text: str, start: int, end: int) -> bool:
    """Tell a key, its lines perhaps numbered, from what somebody wrote about the two marks."""
    import re

    if end - start > _LARGEST:
        return False
    return 5 * sum(map(len, re.compile(_RUN).findall(text, start, end))) >= 2 * (end - start)


def _is_private(encoded: str) -> bool:
    from binascii import Error, a2b_base64

    run = encoded[: len(encoded) - len(encoded.lstrip(_BASE64))]
    try:
        return b"PRIVATE KEY" in a2b_base64(run[: len(run) // 4 * 4])
    except Error:
        return False


def _shape(beginning: str) -> str:
    """Give what stands before a key on its line, but for blanks, quotes and which number it is."""
    import re

    return re.compile(r"[0-9]+").sub("0", beginning).strip(_BLANK + "+")


def _is_line(content: str, shapes: tuple[str, str], *, inside: bool) -> int:
    """Give how many letters at the end of a line are a key's; shapes: what may stand before them.

    inside: the line next to it was a key's; its last line is shorter.
    """
    beginning = content.rstrip(_BASE64)
    run = content[len(beginning) :]
    is_last = inside and ("=" in run or (any(map(str.isdigit, run)) and run != run.lower()))
    if inside and beginning.endswith(_QUOTES) and len(run) >= 16:  # the line on which a text in quotes begins
        return len(run)
    return len(run) if (len(run) >= 16 or is_last) and _shape(beginning) in shapes else 0


def _lines_after(text: str, begins: int, at: int, until: int) -> tuple[int, int]:
    """Give where the key begins and ends that follows a mark without another one: while its lines look alike."""
    import re

    shapes = ("", _shape(text[max(0, begins - 80) : begins].rpartition("\n")[2]))
    same_line = re.compile(_RUNS).match(text, at, until)
    start = end = at
    if same_line:
        start, end = same_line.end() - len(same_line[0].lstrip(_BLANK)), same_line.end()
    line = text.find("\n", end, min(until, end + _LONGEST_LINE)) + 1
    while line:
        stop = min(until, line + _LONGEST_LINE)
        newline = text.find("\n", line, stop)
        content = text[line : newline if newline >= 0 else stop].rstrip(_BLANK)
        letters = _is_line(content, shapes, inside=start < end)
        if letters:
            start = start if start < end else line + len(content) - letters
            end = line + len(content)
        elif start < end and (last := re.compile(_QUOTED_END).match(text, line, stop)):
            end = last.end(1)
            break
        elif _shape(content) not in shapes and (start < end or ": " not in content):  # headers stand before a key
            break
        line = newline + 1
    return start, end


def _lines_before(text: str, since: int, until: int) -> tuple[int, int]:
    """Give where the key begins and ends whose first mark was cut off."""
    shapes = ("", _shape(text[max(since, until - 80) : until].rpartition("\n")[2]))
    start, end, stop = until, since, until
    while stop > since:
        line = text.rfind("\n", since, stop) + 1 or since
        content = text[line:stop].rstrip(_BLANK)
        letters = _is_line(content, shapes, inside=True)
        if letters:
            start, end = line + len(content) - letters, max(end, line + len(content))
        elif _shape(content) not in shapes:
            break
        stop = line - 1
    return start, end
