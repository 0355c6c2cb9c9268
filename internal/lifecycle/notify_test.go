package lifecycle

import (
	"net"
	"path/filepath"
	"testing"
)

func TestNotify(t *testing.T) {
	if err := Notify("", "READY=1"); err != nil {
		t.Errorf("nobody to tell: %v", err)
	}
	name := filepath.Join(t.TempDir(), "notify")
	if err := Notify(name, "READY=1"); err == nil {
		t.Error("a socket that is not there")
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := Notify(name, "READY=1"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if n, err := conn.Read(b); err != nil || string(b[:n]) != "READY=1" {
		t.Errorf("%q, %v", b[:n], err)
	}
}
