package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// boxdsOf returns the processes whose program lies in a data directory.
func boxdsOf(t *testing.T, data string) (pids []int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if exe, err := os.Readlink(l); err == nil && strings.HasPrefix(exe, data+"/") {
			pid, err := strconv.Atoi(strings.Split(l, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestDeadBoxesLeaveNothing: killed boxes, with or without their server, leave no
// cgroup, record, socket or log: neither after the next start nor after an end in order
// (I-18).
func TestDeadBoxesLeaveNothing(t *testing.T) {
	data := testkit.BaseDir(t)
	t.Cleanup(func() { sweep(t, data) })
	for _, server := range []bool{true, false} {
		p := local(t, data)
		var ids []holdfast.SessionID
		for range 4 {
			id := p.session()
			p.put(id, "f")
			ids = append(ids, id)
		}
		if server {
			p.kill()
		}
		boxes := boxdsOf(t, data)
		if len(boxes) < len(ids) {
			t.Fatalf("%d boxes run, not %d", len(boxes), len(ids))
		}
		for _, pid := range boxes {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				t.Fatal(err)
			}
		}
		testkit.Eventually(t, "the boxes are dead", func() bool { return len(boxdsOf(t, data)) == 0 })
		if server {
			p = local(t, data)
			if left := p.boxesLeave(); len(left) > 0 {
				t.Errorf("after the next start:\n%s", strings.Join(left, "\n"))
			}
		} else {
			testkit.Eventually(t, "one death is seen, and its box started again", func() bool {
				_, err := p.WriteFile(t.Context(), ids[0], "g", strings.NewReader(""), 0o644)
				return err == nil
			})
			p.kill()
			p = local(t, data)
		}
		p.stop()
		for _, id := range ids {
			if records := testkit.Glob(data, "run/local/*.sock"); len(records) > 0 {
				t.Fatalf("%s: sockets are left: %v", id, records)
			}
		}
		if server {
			if left := p.boxesLeave(); len(left) > 0 {
				t.Errorf("after the end:\n%s", strings.Join(left, "\n"))
			}
		}
	}
}

// TestDemoEndsWithItsReader: a demo whose reader has gone ends, together with the
// server and the boxes that it started.
func TestDemoEndsWithItsReader(t *testing.T) {
	dir := testkit.BaseDir(t)
	cmd := command(t, nil, "demo", "--dir", dir)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Errorf("the first line: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	testkit.Eventually(t, "no process of the demo is left", func() bool {
		return len(boxdsOf(t, dir)) == 0 && len(serversOn(t, dir)) == 0
	})
}

// serversOn returns the processes that were started with a path below a directory.
func serversOn(t *testing.T, dir string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), dir+"/holdfast-") {
			pids = append(pids, strings.Split(f, "/")[2])
		}
	}
	return pids
}
