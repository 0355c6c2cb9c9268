package hook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/policy"
)

// TestSDKH2_Kinds: functions, commands and addresses are hooks.
func TestSDKH2_Kinds(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"block":true,"reason":"http"}`)
	}))
	defer srv.Close()
	for want, d := range map[string]hook.Definition{
		"func": {Func: says(hook.Output{Verdict: policy.Denied, Reason: "func"})},
		"cmd":  {Command: `echo '{"block":true,"reason":"cmd"}'`},
		"http": {URL: srv.URL},
	} {
		at := places(t)
		if res := one(t, d).Run(t.Context(), bashCall, at); !res.Blocked() || res.Reason != want {
			t.Errorf("%s: %+v", want, res)
		}
		at.HTTP.CloseIdleConnections()
	}
}

// TestSDKH13_TimeoutKillsTheGroup: nothing that the command started is left.
func TestSDKH13_TimeoutKillsTheGroup(t *testing.T) {
	for what, c := range map[string]struct {
		command string
		timeout time.Duration
		want    string
	}{
		"timeout":        {"sleep 1000 & echo $! > %[1]s; (sleep 1000; true) & wait", 3 * time.Second, hook.OutcomeTimeout},
		"left behind":    {"sleep 1000 & echo $! > %[1]s", 20 * time.Second, hook.OutcomeOK},
		"floods":         {"sleep 1000 & echo $! > %[1]s; yes", 20 * time.Second, hook.OutcomeFailed},
		"floods stderr":  {"sleep 1000 & echo $! > %[1]s; yes >&2", 20 * time.Second, hook.OutcomeFailed},
		"ignores signal": {"trap '' TERM INT HUP; sleep 1000 & echo $! > %[1]s; wait", 3 * time.Second, hook.OutcomeTimeout},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			r := one(t, hook.Definition{Command: fmt.Sprintf(c.command, file), Timeout: c.timeout})
			res := r.Run(t.Context(), bashCall, places(t))
			if res.Runs[0].Outcome != c.want {
				t.Errorf("outcome %+v, want %s", res.Runs[0], c.want)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Skip("the command was killed before it began") // only on a stalled machine
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
			if err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the child is gone", func() bool { return gone(pid) })
		})
	}
}

// gone reports that a process has ended, reaped or not.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, ok := strings.Cut(string(stat), ") ")
	return err != nil || ok && strings.HasPrefix(after, "Z")
}

// TestCancelEndsTheCommand: the turn's end ends its hook.
func TestCancelEndsTheCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "begun")
	r := one(t, hook.Definition{Command: "touch " + file + "; sleep 1000"})
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(file); err == nil {
				cancel()
			}
		}
	}()
	if res := r.Run(ctx, bashCall, places(t)); res.Runs[0].Outcome != hook.OutcomeFailed {
		t.Errorf("%+v", res.Runs)
	}
	cancel()
}

// TestSDKH14_InputIsNeverInterpolated: the input comes on stdin, as it is.
func TestSDKH14_InputIsNeverInterpolated(t *testing.T) {
	dir := t.TempDir()
	evil := "'; touch " + dir + "/owned; echo '$(touch " + dir + "/owned)\n`touch " + dir + "/owned`\" $HOME \\"
	input, _ := json.Marshal(map[string]string{"command": evil})
	r := one(t, hook.Definition{Command: `cat > ` + dir + `/seen; printf %s "$HOOK_TOOL_NAME" > ` + dir + `/name`})
	in := hook.Input{Event: hook.PreToolUse, ToolName: "$(touch " + dir + "/owned)\nX", ToolInput: input}
	r.Run(t.Context(), in, places(t))
	var got struct {
		ToolName  string
		ToolInput struct{ Command string }
	}
	raw, _ := os.ReadFile(dir + "/seen")
	if err := json.Unmarshal(raw, &got); err != nil || got.ToolInput.Command != evil || got.ToolName != in.ToolName {
		t.Errorf("stdin %s: %v", raw, err)
	}
	if _, err := os.Stat(dir + "/owned"); err == nil {
		t.Error("the input was run")
	}
	if name, _ := os.ReadFile(dir + "/name"); string(name) != "$(touch "+dir+"/owned) X" {
		t.Errorf("HOOK_TOOL_NAME is %q", name)
	}
}

// TestSDKH17_Environment: the hook's variables, the allow table, nothing else.
func TestSDKH17_Environment(t *testing.T) {
	environ := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/h", "LANG=C", "LC_ALL=C", "TZ=UTC", "TMPDIR=/tmp", "USER=u", "TERM=dumb",
		"ANTHROPIC_API_KEY=secret", "HOLDFAST_TOKEN=secret", "AWS_SECRET_ACCESS_KEY=secret", "GOOGLE_APPLICATION_CREDENTIALS=secret",
		"MY_TOKEN=secret", "BASH_ENV=/secret", "LD_PRELOAD=secret", "HOOK_EVENT=forged",
	}
	r := one(t, hook.Definition{Event: hook.Stop, Command: "env >&2; exit 2"})
	res := r.Run(t.Context(), hook.Input{Event: hook.Stop, Session: "s1"}, hook.Places{Host: hook.Host{Environ: environ, Dir: t.TempDir()}})
	if strings.Contains(res.Reason, "secret") || strings.Contains(res.Reason, "forged") {
		t.Errorf("the environment holds what it must not:\n%s", res.Reason)
	}
	lines := strings.Split(res.Reason, "\n")
	for _, want := range []string{"HOOK_EVENT=stop", "HOOK_TOOL_NAME=", "HOOK_SESSION_ID=s1", "HOOK_CWD=", "HOME=/h", "LC_ALL=C"} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is not in\n%s", want, res.Reason)
		}
	}
}

// TestSDKH19_ExitCodes: 2 blocks with stderr as the reason, others are failures.
func TestSDKH19_ExitCodes(t *testing.T) {
	for _, c := range []struct {
		command, outcome, reason string
		blocked                  bool
	}{
		{"true", "ok", "", false},
		{"echo stop it >&2; exit 2", "blocked", "stop it", true},
		{`echo '{"decision":"approve"}'; echo no >&2; exit 2`, "blocked", "no", true},
		{`echo '{"block":true}'; exit 1`, "failed", "exit status 1", false},
		{"no-such-command-here", "failed", "exit status 127", false},
		{"kill -9 $$", "failed", "killed", false},
	} {
		res := one(t, hook.Definition{Command: c.command}).Run(t.Context(), bashCall, places(t))
		if res.Blocked() != c.blocked || res.Runs[0].Outcome != c.outcome || !strings.Contains(res.Runs[0].Reason, c.reason) {
			t.Errorf("%s: %+v", c.command, res.Runs[0])
		}
		closed := one(t, hook.Definition{Command: c.command, FailClosed: true}).Run(t.Context(), bashCall, places(t))
		if closed.Blocked() != (c.outcome != "ok") {
			t.Errorf("%s, failing closed: %+v", c.command, closed.Runs[0])
		}
	}
}

// TestSDKH20_TenMegabytesEachWay: neither a command that reads nothing nor one that
// writes before it reads stands still.
func TestSDKH20_TenMegabytesEachWay(t *testing.T) {
	big, _ := json.Marshal(strings.Repeat("x", 10<<20))
	in := hook.Input{Event: hook.PreToolUse, ToolName: "Write", ToolInput: json.RawMessage(`{"content":` + string(big) + `}`)}
	for command, want := range map[string]string{
		"wc -c":    strconv.Itoa(len(big) + 70),
		"true":     "",
		"exec <&-": "",
		`head -c 10000000 /dev/zero | tr '\0' y; cat > /dev/null`: "yyyy",
		"cat | head -c 10000000":                                  `{"event":"preToolUse"`,
	} {
		res := one(t, hook.Definition{Command: command}).Run(t.Context(), in, places(t))
		got := res.Runs[0]
		if got.Outcome != hook.OutcomeOK || !strings.HasPrefix(got.Message, want[:min(len(want), 5)]) {
			t.Errorf("%s: %s %s %.60q, want %q", command, got.Outcome, got.Reason, got.Message, want)
		}
		if len(got.Message) > 9<<10 {
			t.Errorf("%s: a message of %d bytes goes on", command, len(got.Message))
		}
	}
}

// TestHTTPHooks: what is sent, what is read, what is not followed.
func TestHTTPHooks(t *testing.T) {
	var auth, body string
	hang := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		auth, body = r.Header.Get("Authorization"), string(raw)
		_, _ = io.WriteString(w, `{"message":"fine"}`)
	})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "gone away", 500) })
	mux.HandleFunc("/there", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	mux.HandleFunc("/hang", func(w http.ResponseWriter, r *http.Request) { <-hang })
	mux.HandleFunc("/flood", func(w http.ResponseWriter, r *http.Request) {
		for chunk := make([]byte, 1<<20); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	srv := httptest.NewServer(mux)
	at := places(t)
	defer at.HTTP.CloseIdleConnections()
	for _, c := range []struct{ path, outcome, reason string }{
		{"/ok?key=hidden", "ok", ""}, {"/gone", "failed", "500"}, {"/there", "failed", "302"}, {"/hang", "timeout", ""}, {"/flood", "failed", "bytes"},
	} {
		d := hook.Definition{URL: srv.URL + c.path, Secret: "s3cret"}
		if c.path == "/hang" {
			d.Timeout = 50 * time.Millisecond
		}
		got := one(t, d).Run(t.Context(), bashCall, at).Runs[0]
		if got.Outcome != c.outcome || !strings.Contains(got.Reason, c.reason) || strings.Contains(fmt.Sprint(got), "hidden") {
			t.Errorf("%s: %+v", c.path, got)
		}
	}
	if auth != "Bearer s3cret" || !strings.Contains(body, `"toolName":"Bash"`) {
		t.Errorf("sent %q with %q", body, auth)
	}
	close(hang)
	srv.Close()
	got := one(t, hook.Definition{URL: srv.URL + "/x?key=hidden"}).Run(t.Context(), bashCall, at).Runs[0]
	if got.Outcome != hook.OutcomeFailed || strings.Contains(got.Reason, "hidden") {
		t.Errorf("nobody there: %+v", got)
	}
	for _, u := range []string{"ftp://h/", "http://", "h", "http://[::1"} {
		if _, err := new(hook.Registry).Register(hook.Definition{Event: hook.Stop, URL: u}); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", u, err)
		}
	}
}
