//go:build linux

package app_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/double"
)

// TestHZ7_ClaudeHoldsNoKey: the box of a session of the real CLI holds the provider's
// key nowhere, neither in an environment nor in a file nor in the memory of any of its
// processes, and has no network; the provider is shown the key all the same.
//
// WS-R47, WS-R118, WS-R121, WS-R124.
func TestHZ7_ClaudeHoldsNoKey(t *testing.T) {
	const canary = "sk-ant-canary-9d41c07be2"
	t.Setenv("ANTHROPIC_API_KEY", canary)
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = model.Close() })
	var shown, asked atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("X-Api-Key") == canary {
			shown.Add(1)
		}
		model.ServeHTTP(w, r)
	}))
	t.Cleanup(provider.Close)
	cfg := claudeSettings(t)
	cfg.Models.Anthropic.URL, cfg.DefaultModel = provider.URL, "anthropic/claude-canary"
	c, _ := serve(t, cfg)
	s := claudeSession(t, c, nil)
	look := `env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; ` +
		`grep -rls 'sk-ant-[c]' /home /workspace /tmp /run /etc | sed 's/^/found-in: /'; ` +
		`echo interfaces: $(tail -n +3 /proc/net/dev | cut -d: -f1); ` +
		`for a in 192.0.2.1/80 ` + strings.Replace(strings.TrimPrefix(provider.URL, "http://"), ":", "/", 1) +
		`; do (exec 3<>/dev/tcp/$a) 2>/dev/null && echo reached: $a; done; true`
	turn(t, c, s.ID, fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":"%s"}},{"say":"looked"}]</script>`, look))
	said := logged[holdfast.ToolFinished](t, c, s.ID, holdfast.EventToolFinished)
	if len(said) != 1 || !strings.Contains(said[0].Content, "ANTHROPIC_API_KEY=") || !strings.HasSuffix(said[0].Content, "interfaces: lo") {
		t.Fatalf("the look around saw %+v", said)
	}
	for line := range strings.Lines(said[0].Content) {
		if strings.Contains(line, canary) || strings.HasPrefix(line, "found-in: ") || strings.HasPrefix(line, "reached: ") {
			t.Errorf("inside there is %s", line)
		}
	}
	boxes, err := c.Containers(t.Context())
	if err != nil || len(boxes) != 1 {
		t.Fatalf("%+v, %v", boxes, err)
	}
	holdsNowhere(t, boxes[0].PID, canary)
	filesHoldNot(t, filepath.Join(cfg.Data, "sessions"), canary)
	if asked.Load() < 2 || shown.Load() != asked.Load() {
		t.Errorf("the provider was asked %d times and shown the key %d times", asked.Load(), shown.Load())
	}
	events, err := c.Events(t.Context(), s.ID, holdfast.EventFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events {
		if bytes.Contains(ev.Data, []byte(canary)) {
			t.Errorf("event %d %s holds the key", ev.Seq, ev.Type)
		}
	}
}

// holdsNowhere searches the memory of a box's processes.
func holdsNowhere(t *testing.T, boxd int, canary string) {
	t.Helper()
	procs := descendants(t, boxd)
	if len(procs) < 2 {
		t.Fatalf("the box has processes %v, and the CLI among them", procs)
	}
	found := false
	for _, pid := range procs {
		n, at := search(t, pid, []byte(canary))
		if n < 1<<20 {
			t.Errorf("%d bytes of process %d were looked at", n, pid)
		}
		if at != "" {
			t.Errorf("process %d has the key at %s", pid, at)
		}
		// That the search finds what is there is shown by the key that is none.
		_, dummy := search(t, pid, []byte("held-by-the-server"))
		found = found || dummy != ""
	}
	if !found {
		t.Error("the search found the dummy key nowhere")
	}
}

// descendants are a process and all below it.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	out := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, descendants(t, child)...)
		}
	}
	return out
}

// search looks for a text in what a process has written to its memory, and says how
// much that was and where it is.
func search(t *testing.T, pid int, text []byte) (looked int64, at string) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer pagemap.Close()
	const page, run = 4096, 256
	buf, entries := make([]byte, run*page), make([]byte, run*8)
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || mode[0] != 'r' || strings.Contains(line, "[v") {
			continue
		}
		var kept []byte
		for ; from < to; from += run * page {
			n := int(min((to-from)/page, run))
			if _, err := pagemap.ReadAt(entries[:n*8], int64(from/page*8)); err != nil {
				break
			}
			for i := range n {
				// Neither in memory nor swapped out: nothing was ever there.
				if binary.LittleEndian.Uint64(entries[i*8:])>>62 == 0 {
					kept = kept[:0]
					continue
				}
				if _, err := mem.ReadAt(buf[:page], int64(from)+int64(i)*page); err != nil {
					kept = kept[:0]
					continue
				}
				looked += page
				// A text may lie across two pages.
				kept = append(kept, buf[:page]...)
				if bytes.Contains(kept, text) {
					return looked, strings.TrimSpace(line)
				}
				kept = append(kept[:0], kept[max(0, len(kept)-len(text)):]...)
			}
		}
	}
	return looked, ""
}
