package egress_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/egress"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// claude runs the real CLI for one prompt with its models behind a broker, and gives
// its result.
func claude(t *testing.T, b *egress.Broker, prompt string, env ...string) (result struct {
	Subtype string `json:"subtype"`
	IsError bool   `json:"is_error"`
	Result  string `json:"result"`
	Status  int    `json:"api_error_status"`
},
) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "m.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.Serve(session, "", c)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	cmd := exec.CommandContext(t.Context(), filepath.Join(testkit.Claude(t), "claude"), "-p",
		"--output-format", "stream-json", "--verbose", "--setting-sources=", "--permission-mode", "acceptEdits", "--", prompt)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"HOME=" + dir, "PATH=/usr/bin:/bin", "ANTHROPIC_UNIX_SOCKET=" + socket, "ANTHROPIC_BASE_URL=http://localhost", "ANTHROPIC_API_KEY=dummy",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_MAX_RETRIES=2",
	}, env...)
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		var m struct{ Type string }
		if json.Unmarshal([]byte(line), &m) == nil && m.Type == "result" {
			if err := json.Unmarshal([]byte(line), &result); err != nil {
				t.Fatal(err)
			}
			return result
		}
	}
	t.Fatalf("no result: %v\n%s", err, out)
	return result
}

// TestHZ7_TheRealCLIPassesTheList: what the pinned CLI sends is on the list, tools and
// their results included, and what the broker refuses is what its user reads.
func TestHZ7_TheRealCLIPassesTheList(t *testing.T) {
	d := upstream(t)
	turn := newTurn("anthropic/claude-sonnet-4-5")
	r := broker(t, turn, d.URL(), nil)
	res := claude(t, r.b, `<script>[{"think":"hm","say":"I look","tool":"Bash","input":{"command":"echo one"}},{"tool":"Read","input":{"file_path":"/none"}},{"say":"all done"}]</script>`)
	if res.IsError || res.Result != "all done" {
		t.Fatalf("%+v", res)
	}
	if evs := turn.recorded(); len(evs) < 3 || evs[0].Status != holdfast.StatusOK {
		t.Errorf("recorded %+v", evs)
	}

	turn.bound = 10
	res = claude(t, r.b, "hello")
	if !res.IsError || !strings.Contains(res.Result, "budget of tokens is used up") || !strings.Contains(res.Result, "raise it") {
		t.Errorf("over the budget: %+v", res)
	}
	turn.bound = 0

	before := len(d.Requests())
	res = claude(t, r.b, `<script>[{"error":"rate_limit","times":9,"retry_after":3600}]</script>`)
	l, ok := r.b.LastLimit(session)
	if !res.IsError || !ok || l.Status != 429 || l.RetryAfter.Hours() != 1 || l.Until().IsZero() {
		t.Errorf("limited: %+v %+v", res, l)
	}
	if n := len(d.Requests()) - before; n > 2 {
		t.Errorf("%d requests: it was tried again", n)
	}
}
