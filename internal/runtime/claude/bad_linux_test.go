package claude_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/claude"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
)

// fakeAgent speaks the CLI's protocol as badly as a scenario says, in the first turn
// that a box sees; after that it answers. It is a fake of the child, not of a rule.
const fakeAgent = `
n=0; version=VERSION; applied=true
say() { printf '%s\n' "$1"; }
text() { say '{"type":"assistant","uuid":"u'$n'","parent_tool_use_id":null,"message":{"id":"m'$n$RANDOM'","role":"assistant","model":"m","content":[{"type":"text","text":"'"$1"'"}],"usage":{"input_tokens":1,"output_tokens":1}}}'; }
result() { say '{"type":"result","subtype":"success","is_error":false,"result":"'"$1"'","stop_reason":"end_turn","user_message_uuids":["'$id'"]}'; }
ask() { say '{"type":"control_request","request_id":"'$1'","request":{"subtype":"hook_callback","callback_id":"hf-pre","input":{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"'$2'"},"tool_use_id":"'$2'"}}'; }
once() { [ ! -e /tmp/$1 ] && touch /tmp/$1; }
scenario() { :; }
SCENARIO
while IFS= read -r line; do
	case "$line" in
	*'"subtype":"initialize"'*)
		say '{"type":"control_response","response":{"subtype":"success","request_id":"hf-initialize","response":{"claude_code_version":"'$version'","hooks_applied":'$applied'}}}' ;;
	*'"type":"user"'*)
		n=$((n+1)); id=${line#*'"uuid":"'}; id=${id%%'"'*}
		say '{"type":"command_lifecycle","command_uuid":"'$id'","state":"started"}'
		if once done; then rm /tmp/done; scenario; touch /tmp/done; fi
		text "said $n"; result "said $n" ;;
	esac
done
`

// TestBadAgents: whatever the child says or does, the turn fails in words or goes on,
// every tool use has one answer, and the next turn is answered.
//
// WS-R98, WS-R99.
func TestBadAgents(t *testing.T) {
	for _, k := range []struct {
		name, scenario string
		kind           holdfast.Kind
		says           string
		unknown        int
	}{
		{"Garbage", `scenario() { say 'no json'; printf '{"type":"assist'; sleep 0.1; printf 'ant"\n'; say ''; say '[]'; say 'null'; say '{"type":5}'
			for i in $(seq 50); do say '{"type":"from_the_future","a":{"b":1}}'; done; printf '\377\376\000{"type":"x"}\n'; }`, "", "said 1", 0},
		{"Long", `scenario() { printf '{"type":"noise","x":"'; head -c 10000000 /dev/zero | tr '\0' a; printf '"}\n'; }`, "", "said 1", 0},
		{"TooLong", `scenario() { touch /tmp/done; printf '{"type":"noise","x":"'; head -c 14000000 /dev/zero | tr '\0' a; printf '"}\n'; }`, holdfast.KindTooLarge, "a line of more than", 0},
		{"LongAnswer", `scenario() { say '{"type":"stream_event","event":{"type":"message_start","message":{"id":"long"}}}'
			pad=$(head -c 2000 /dev/zero | tr '\0' a)
			for i in $(seq 12000); do say '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}},"pad":"'$pad'"}'; done
			say '{"type":"stream_event","event":{"type":"message_stop"}}'; }`, "", "said 1", 0},
		{"OutOfOrder", `scenario() {
			say '{"type":"control_response","response":{"subtype":"success","request_id":"nobody","response":{}}}'
			say '{"type":"control_response","response":{"subtype":"error","request_id":"hf-initialize","error":"late"}}'
			say '{"type":"control_response","response":{"subtype":"error","request_id":"hf-model","error":{"odd":1}}}'
			say '{"type":"control_cancel_request","request_id":"nobody"}'; say '{"type":"control_cancel_request"}'
			say '{"type":"result","subtype":"success","user_message_uuids":["another"],"result":"not this"}'
			say '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"nobody","content":"x"}]}}'
			say '{"type":"stream_event","event":{"type":"message_stop"}}'; say '{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":9}}}'; }`, "", "said 1", 0},
		{"OddRequests", `scenario() { say '{"type":"control_request","request_id":"q1","request":{"subtype":"elicitation"}}'; read -r a
			case "$a" in *'"error"'*q1*) ;; *) exit 9;; esac
			say '{"type":"control_request","request_id":"q2","request":{"subtype":"mcp_message","server_name":"other","message":{"method":"tools/call","id":1}}}'; read -r a
			case "$a" in *'"error"'*q2*) ;; *) exit 9;; esac
			ask "" x; read -r a; ask q3 ""; read -r a; ask q4 use1; ask q4 use1; read -r a
			case "$a" in *q4*'"permissionDecision":"allow"'*) ;; *) exit 9;; esac; }`, "", "said 1", 1},
		{"ResultTwice", `scenario() { text "said 1"; result "said 1"; result "again"; touch /tmp/done; }`, "", "said 1", 0},
		{"DiesOnce", `scenario() { touch /tmp/done; echo oops >&2; exit 3; }`, "", "said 1", 0},
		{"DiesWithATool", `scenario() { touch /tmp/done; ask q1 use1; read -r a; exit 3; }`, holdfast.KindUnavailable, "exit code 3", 1},
		{"DiesAlways", `if [ ! -e /tmp/over ]; then scenario() { if once a; then :; elif once b; then touch /tmp/over; fi; echo oops >&2; exit 3; }; fi`, holdfast.KindUnavailable, "exit code 3: oops", 0},
		{"WrongVersion", `once v && version=0.0.1`, holdfast.KindUnavailable, `release "0.0.1"`, 0},
		{"NoCallbacks", `once v && applied=false`, holdfast.KindUnavailable, "callbacks", 0},
		{"OddFailure", `scenario() { touch /tmp/done; say '{"type":"result","subtype":"error_from_the_future","is_error":true,"api_error_status":"odd","errors":{"a":1},"result":7,"user_message_uuids":["'$id'"]}'; }`, holdfast.KindUnavailable, "7", 0},
	} {
		t.Run(k.name, func(t *testing.T) {
			cfg := fakeCLI(t, k.scenario)
			w := cfg.NewWorld(t)
			ran := runOne(t, cfg, w, "one", t.Context())
			switch {
			case k.kind == "" && (ran.Err != nil || ran.Result.Text != k.says):
				t.Errorf("%v %q", ran.Err, ran.Result.Text)
			case k.kind != "" && (!holdfast.IsKind(ran.Err, k.kind) || !strings.Contains(ran.Err.Error(), k.says) && !strings.Contains(ran.Err.Error(), "7")):
				t.Errorf("%v", ran.Err)
			}
			if n := len(runtimetest.Payloads[holdfast.ToolUnknown](w, holdfast.EventToolUnknown)); n != k.unknown {
				t.Errorf("%d unknown outcomes", n)
			}
			w.CheckAnswered()
			if n := len(runtimetest.Payloads[holdfast.Notice](w, holdfast.EventNotice)); n > 10 {
				t.Errorf("%d notices", n)
			}
			if ran := runOne(t, cfg, w, "two", t.Context()); ran.Err != nil || !strings.HasPrefix(ran.Result.Text, "said ") {
				t.Errorf("the next turn: %v %q", ran.Err, ran.Result.Text)
			}
		})
	}
}

var errStopped = errors.New("stopped")

// TestSilentAgents: an agent that says nothing, or closed its output, is ended when the
// turn is, and the next turn has another one.
func TestSilentAgents(t *testing.T) {
	for name, scenario := range map[string]string{
		"Silent":     `scenario() { touch /tmp/done; text up; sleep 1000; }`,
		"Closed":     `scenario() { touch /tmp/done; text up; exec 1>&-; sleep 1000; }`,
		"HalfALine":  `scenario() { touch /tmp/done; text up; printf '{"type":"res'; sleep 1000; }`,
		"NeverReady": `if once r; then sleep 1000; fi`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := fakeCLI(t, scenario)
			w := cfg.NewWorld(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3*time.Second, func() { cancel(errStopped) })
			began := time.Now()
			if ran := runOne(t, cfg, w, "one", ctx); !errors.Is(ran.Err, errStopped) || time.Since(began) > 20*time.Second {
				t.Errorf("after %s: %v", time.Since(began), ran.Err)
			}
			if ran := runOne(t, cfg, w, "two", t.Context()); ran.Err != nil || !strings.HasPrefix(ran.Result.Text, "said ") {
				t.Errorf("the next turn: %v %q", ran.Err, ran.Result.Text)
			}
		})
	}
}

func fakeCLI(t *testing.T, scenario string) runtimetest.Config {
	script := strings.NewReplacer("SCENARIO", scenario, "VERSION", claude.Version).Replace(fakeAgent)
	return realCLI(t, func(c *claude.Config) {
		c.Program = func(holdfast.Trust) (claude.Program, error) {
			return claude.Program{Argv: []string{"/bin/bash", "-c", script, "agent"}, Version: claude.Version}, nil
		}
	})
}

// runOne runs a turn on a server of its own.
func runOne(t *testing.T, cfg runtimetest.Config, w *runtimetest.World, text string, ctx context.Context) runtimetest.Ran {
	t.Helper()
	h := w.NewHost()
	defer h.Close()
	id := w.Begin(text)
	ran := h.Run(ctx, cfg.New(t), w.Turn(id, false))
	switch {
	case ran.Err == nil:
		w.Complete(id, ran.Result)
	default:
		w.End(id, holdfast.EventTurnFailed)
	}
	return ran
}
