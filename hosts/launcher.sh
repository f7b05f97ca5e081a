# What the launcher does for the hooks of the other hosts: bin/loomctl reads it where the bundle says `--host` of one,
# and goes on with what is set here. POSIX shell, builtins alone where it can be; what ends here ends with 0.
# shellcheck shell=sh disable=SC2034,SC2154 # its variables are bin/loomctl's

# begin_anew: begin again with what this host's hooks have in no variable: the session's id, from the event's head,
# and the process that calls. The event follows whole.
begin_anew() {
    event=$(dd bs=65536 count=1 2>/dev/null && echo .)
    session=''
    case $host in
        copilot) # what a subagent does bears an id of its own, and its parent's
            case ${event%%'"tool_name"'*} in
                *'"parent_agent_id":"'*)
                    case ${2-} in pre-tool-use | post-tool-use*) ;; *) exit 0 ;; esac
                    field parent_agent_id
                    session=$value
                    ;;
            esac
            ;;
    esac
    field session_id
    pid=$PPID
    if [ "$host" = copilot ]; then pid=${LOOM_CALLER:-$pid}; fi # its hook command calls with `||`, in a shell
    export LOOM_HOST="$host" LOOM_HOST_SESSION="${session:-$value}" LOOM_HOST_PID="$pid"
    case $host=${2-}=$event in
        codex=pre-tool-use=*'"tool_name":"Bash"'*'"command":"apply_patch <<'*) tell_of_patch ;;
        codex=pre-tool-use=*'"tool_name":"Bash"'*'"command":"cd '*' && apply_patch <<'*) tell_of_patch ;;
    esac
    shift
    { printf %s "${event%.}" && cat; } | "$0" hook --host "$host" --anew "$@"
    exit 0
}

# tell_of_patch: record that a patch was given, by the event before it. This host applies what its shell is given so
# itself, and calls no hook behind it. The files that it names are the working directory's, unless it begins with another.
tell_of_patch() {
    rest=$(cat && echo .) told=${event%.} name=Bash
    case $event in *'"command":"apply_patch'*) name=apply_patch ;; esac
    instead '"hook_event_name":"PreToolUse"' '"hook_event_name":"PostToolUse"'
    ended='given to the host to apply, which tells no hook how that ended'
    instead '"tool_name":"Bash"' '"tool_response":"'"$ended"'","tool_name":"'"$name"'"'
    printf %s%s "$told" "${rest%.}" | "$0" hook --host "$host" --anew post-tool-use-failure
    event=${event%.}$rest
}
instead() { # in what stands near the beginning: some shells take long for what does not
    case $told in *"$1"*'"tool_input"'*) told=${told%%"$1"*}$2${told#*"$1"} ;; esac
}

# note_session: note for `loomctl` which session the process that calls is, where its shells have no word of it, as
# long as one of them may be about to call Loom (loomctl/hosts/shells.py). In the user's own folder, for the project may have
# no store yet.
note_session() {
    at=${LOOM_STATE_HOME-}
    case $at in
        /*) ;;
        *)
            at=${XDG_STATE_HOME-}
            case $at in
                /*) at=$at/loom ;;
                *)
                    case ${HOME-} in /*) ;; *) return ;; esac
                    at=$HOME/.local/state/loom
                    if [ -d /System/Library ]; then at="$HOME/Library/Application Support/loom"; fi
                    ;;
            esac
            ;;
    esac
    at=$at/hosts
    [ -d "$at" ] || (umask 077 && mkdir -p "$at") || return
    [ ! -L "$at" ] && [ ! -L "$at/$pid" ] && { [ ! -e "$at/$pid" ] || [ -f "$at/$pid" ]; } || return
    printf '%s %s\n' "$host" "$session" >"$at/$pid"
} 2>/dev/null

# look_for_compaction [at-a-start]: note a compaction that nothing but the session's file tells of: the line that sets
# its messages anew, with a snapshot among them. They are counted, in what came since the last look alone: the count,
# the size then and the path are noted. A start counts, too, and notes nothing.
look_for_compaction() {
    whole=$event
    [ -n "$event" ] || event=$(dd if="$kept" bs=4096 count=1)
    field transcript_path
    event=$whole at=$nearest/local/primed
    [ -n "$value" ] && [ -f "$value" ] && [ -d "$at" ] || return
    [ ! -L "$nearest" ] && [ ! -L "$nearest/local" ] && [ ! -L "$at" ] || return
    [ ! -L "$at/$session.snapshots" ] && [ ! -L "$at/$session.compacted" ] || return
    counted='' from='' path=''
    { IFS=' ' read -r counted from path <"$at/$session.snapshots"; } 2>/dev/null
    case $counted in '' | *[!0-9]* | 0?* | ?????????*) counted=0 path='' ;; esac
    case $from in '' | *[!0-9]* | 0?* | ?????????????*) from=0 path='' ;; esac
    size=$(wc -c <"$value") || return
    size=$((size)) count=$counted
    if [ "$path" != "$value" ] || [ "$from" -gt "$size" ]; then from=0 count=0; fi
    [ "$from" -lt "$size" ] || return
    # A line that is being written has no end yet, and is looked at when it has.
    [ -z "$(tail -c +"$size" "$value" | head -c 1)" ] || return
    new=$(tail -c +"$((from + 1))" "$value" | head -c "$((size - from))" |
        LC_ALL=C grep -c '^{"[$]set":{"messages":.*"type":"user","content":\[{"text":"<state_snapshot>')
    count=$((count + new))
    printf '%s %s %s\n' "$count" "$size" "$value" >"$at/$session.snapshots"
    [ "$count" = "$counted" ] || [ "${1-}" = at-a-start ] || : >"$at/$session.compacted"
} 2>/dev/null

is_start() { # a session's first prompt in a process, where no other event says that one starts
    [ "$host" = gemini ] || return
    was='' at=$nearest/local/hosts/$pid.rested
    if [ -f "$at" ] && [ ! -L "$at" ]; then { IFS= read -r was <"$at"; } 2>/dev/null; fi
    event=$(cat && echo .)
    if [ "$was" = "$host $session" ]; then
        look_for_compaction
        return 1
    fi
    look_for_compaction at-a-start
    return 0
}

compacted() {
    if [ "$host" = gemini ] && [ -n "${kept-}" ]; then look_for_compaction; fi
    [ -n "$session" ] && [ -f "$nearest/local/primed/$session.compacted" ]
}

# calls_loom: tell whether the kept event is of a call of Loom's own: what it took up is remembered by its hook.
calls_loom() {
    [ -n "$kept" ] && begins=$(dd if="$kept" bs=4096 count=1) && case $begins in *loomctl*) ;; *) return 1 ;; esac
} 2>/dev/null

# ---- Which session and process it is, and where they work.

if [ "$host" != opencode ]; then LOOM_HOST_BUSY=''; fi # its plugin alone says it
case $host in
    codex) # its shells are in a sandbox
        # Hooks of the user's own hooks.json answer instead of the plugin's (loomctl/hosts/setup/codex.py).
        if [ -n "${PLUGIN_ROOT-}" ] && [ -f "${CODEX_HOME:-${HOME-}/.codex}/loom-hooks" ]; then exit 0; fi
        pid='' shut=1
        LOOM_HOST_BUSY=1 # all terminals share one process, of which nobody knows whether it rests
        ;;
    opencode) session=${LOOM_HOST_SESSION-} pid=${LOOM_HOST_PID-} ;; # as its plugin says
    qwen)
        session=${QWEN_CODE_SESSION_ID-} pid=$PPID launched=${QWEN_PROJECT_DIR-}
        export LOOM_HOST="$host" LOOM_HOST_PID="$pid"
        if [ "${2-}" = user-prompt-submit ]; then
            event=$(cat && echo .)
            case $event in *'"prompt":""'*) exit 0 ;; esac # comes after each tool's call, and is nobody's
        fi
        ;;
    copilot) # its hooks run in the bundle's folder
        pid='' launched=${COPILOT_PROJECT_DIR-} large=800 # what it put away itself is small
        here=${launched:-$here}
        ;;
    gemini)
        session=${GEMINI_SESSION_ID-} pid=$PPID launched=${GEMINI_PROJECT_DIR-}
        [ -n "$session" ] || exit 0 # another host that reads this one's file
        case $session in *[!A-Za-z0-9_-]*) exit 0 ;; esac
        export LOOM_HOST="$host" LOOM_HOST_PID="$pid"
        if [ "${2-}" = pre-tool-use ]; then
            event=$(cat && echo .)
            case $event in *loomctl*) note_session ;; esac
        fi
        ;;
    *) exit 0 ;; # a host that this version does not know
esac
if [ "${2-}" = --anew ]; then
    session=${LOOM_HOST_SESSION-} pid=${LOOM_HOST_PID-}
    shift 2
    set -- hook "$@"
elif [ -z "$pid" ]; then
    begin_anew "$@"
fi
