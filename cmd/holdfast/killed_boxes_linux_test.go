package main

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestIdleBoxesKilledAtOnce: twelve idle boxes are dead before anything is sent to them.
// The turn or the command that comes next runs in a new box, once, and no call is unknown:
// none of them reached a box that died.
func TestIdleBoxesKilledAtOnce(t *testing.T) {
	p := local(t, testkit.BaseDir(t))
	ids := make([]holdfast.SessionID, 12)
	for i := range ids {
		ids[i] = p.boxed()
	}
	pids := make([]string, len(ids))
	for i, id := range ids {
		pids[i] = strconv.Itoa(p.boxPID(id))
		p.killBox(id)
	}
	for _, pid := range pids {
		testkit.Eventually(t, "boxd has ended", func() bool {
			// Its sockets are open until its last thread has ended, the first one may be earlier.
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			threads, terr := os.ReadDir("/proc/" + pid + "/task")
			return err != nil || terr != nil || strings.Contains(string(stat), ") Z ") && len(threads) == 1
		})
	}
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			if i%2 == 0 {
				if res, err := p.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo ran >> log"}); err != nil || res.ExitCode != 0 {
					t.Errorf("command %d: %+v %v", i, res, err)
				}
				return
			}
			turn := p.send(id, `<script>[{"tool":"Bash","input":{"command":"echo ran >> log"}},{"say":"done"}]</script>`)
			if got := p.followed(id, turn); got.Status != holdfast.TurnCompleted || got.Result != "done" {
				t.Errorf("turn %d: %+v", i, got)
			}
			if n := p.count(id, holdfast.EventToolUnknown); n != 0 {
				t.Errorf("turn %d: %d calls are unknown", i, n)
			}
		})
	}
	wg.Wait()
	for i, id := range ids {
		if got := p.file(id, "log"); got != "ran\n" {
			t.Errorf("session %d: the log holds %q", i, got)
		}
	}
}
