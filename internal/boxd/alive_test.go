//go:build linux

package boxd_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestAliveCountsBackgroundProcesses: the answer of each call tells how many processes live after
// it, those that left their call's session included, and none once they have ended.
func TestAliveCountsBackgroundProcesses(t *testing.T) {
	c := startBox(t).dial(1)
	leaves := newCall(t)
	for _, tc := range []struct {
		what string
		act  func()
		want int
	}{
		{"nothing", func() { run(t, c, sh("true"), sandbox.ExecOptions{}) }, 0},
		{"a pipeline that ended", func() { run(t, c, sh("seq 100 | sort | tail -1"), sandbox.ExecOptions{}) }, 0},
		{"a session of its own", func() {
			if _, err := c.Exec(t.Context(), leaves, sh("setsid sleep 600 </dev/null >/dev/null 2>&1 &"), sandbox.ExecOptions{}); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"a write", func() {
			if _, err := c.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "f"}, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"its end", func() {
			if err := c.Kill(t.Context(), wire.KillRequest{Call: leaves.ID}); err != nil {
				t.Fatal(err)
			}
			run(t, c, sh("true"), sandbox.ExecOptions{})
		}, 0},
	} {
		tc.act()
		if n, known := c.Alive(); !known || n != tc.want {
			t.Errorf("after %s: %d processes, known %v, want %d", tc.what, n, known, tc.want)
		}
	}
}
