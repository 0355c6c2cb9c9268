//go:build linux

package local_test

import (
	"net"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestSDKB6_NoSandboxInABox: what a sandbox is made of cannot be made in a box.
func TestSDKB6_NoSandboxInABox(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	b := box(t, d, spec(dir, "nested"))
	install(t, b)
	for _, argv := range [][]string{
		{"./probe", "unshare", "268435456"}, // CLONE_NEWUSER
		{"./probe", "unshare", "131072"},    // CLONE_NEWNS
		{"./probe", "clone", "268435456"},
		{"./probe", "chroot"},
		{"./probe", "mount"},
	} {
		if _, out := try(t, b, wire.ExecRequest{Argv: argv}); strings.HasPrefix(out, "ok") || strings.TrimSpace(out) == "" {
			t.Errorf("%v: %q", argv, out)
		}
	}
}

// TestSDKB14_TheLoopbackOfABoxIsItsOwn: a program in a box may listen on its
// loopback; nobody outside reaches it, and it reaches nobody on the host's.
func TestSDKB14_TheLoopbackOfABoxIsItsOwn(t *testing.T) {
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	dir := home(t)
	d := open(t, dir)
	b := box(t, d, spec(dir, "loopback"))
	install(t, b)
	dial := "if (exec 3<>/dev/tcp/" + strings.Replace(outside.Addr().String(), ":", "/", 1) + ") 2>/dev/null; then echo reached; else echo nobody; fi"
	if out := strings.TrimSpace(sh(t, b, dial)); out != "nobody" {
		t.Errorf("a box reaches the host's loopback: %q", out)
	}
	// The same port is free in the box: it is another loopback.
	if _, out := try(t, b, wire.ExecRequest{Argv: []string{"./probe", "listen", outside.Addr().String()}}); strings.TrimSpace(out) != "ok" {
		t.Errorf("a program cannot listen on its own loopback: %q", out)
	}
}
