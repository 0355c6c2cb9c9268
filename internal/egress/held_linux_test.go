package egress_test

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/egress"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestHZ12_ARequestWaitsForTheNextServer: a client in a real box connects while no
// server is there; the next one answers it. A request that was under way is cut, and
// what the client asks then is answered.
func TestHZ12_ARequestWaitsForTheNextServer(t *testing.T) {
	d, spec := realBox(t)
	ws := filepath.Join(spec.Dir, "workspace")

	asked, stall := make(chan struct{}, 4), make(chan struct{})
	turn := newTurn("anthropic/claude-sonnet-4-5")
	double := upstream(t)
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-stall:
			double.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	up := answering(t, turn, front, nil)
	url := up.url
	// attach is a server: a broker, and a pipe to the box.
	attach := func(token uint64) (*sandbox.Box, *egress.Broker) {
		b := broker(t, turn, url, nil).b
		conn, err := d.Connect(t.Context(), spec.Box)
		if err != nil {
			t.Fatal(err)
		}
		box, err := sandbox.Dial(t.Context(), spec.Box, conn, token, func(_ holdfast.SessionID, _ string, c net.Conn) { b.Serve(session, "", c) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := box.Listen(t.Context(), wire.ListenRequest{Name: "model", Network: "tcp", Address: "127.0.0.1:8081"}); err != nil {
			t.Fatal(err)
		}
		return box, b
	}
	box, b := attach(1)
	// The client tries again when it is cut, as agents do.
	body := strings.ReplaceAll(message("hello"), "'", "")
	script := `ask() { exec 3<>/dev/tcp/127.0.0.1/8081 || return 1
printf 'POST /v1/messages HTTP/1.1\r\nHost: x\r\nAnthropic-Version: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#1} "$1" >&3; cat <&3 > answer.part; exec 3>&-; grep -q message_stop answer.part; }
until ask '` + body + `'; do echo cut >> cuts; done; mv answer.part answer`
	call := sandbox.Call{ID: "01931f00-0000-7000-8000-00000000000a"}
	ran := make(chan error, 1)
	go func() {
		_, err := box.Exec(t.Context(), call, wire.ExecRequest{Shell: script}, sandbox.ExecOptions{})
		ran <- err
	}()
	<-asked
	// The server dies with the request under way.
	if err := box.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	<-ran
	testkit.Eventually(t, "the client is cut and asks again", func() bool {
		raw, _ := os.ReadFile(filepath.Join(ws, "cuts"))
		return strings.Count(string(raw), "cut") == 1
	})
	if _, err := os.Stat(filepath.Join(ws, "answer")); err == nil {
		t.Fatal("nobody was there, and it was answered")
	}
	close(stall)
	box, _ = attach(2)
	testkit.Eventually(t, "the next server answers", func() bool {
		raw, _ := os.ReadFile(filepath.Join(ws, "answer"))
		return strings.Contains(string(raw), "You have sent 1 messages")
	})
	raw, _ := os.ReadFile(filepath.Join(ws, "cuts"))
	if strings.Count(string(raw), "cut") != 1 {
		t.Errorf("it was not held, but cut: %q", raw)
	}
	if err := box.Close(); err != nil {
		t.Error(err)
	}
}

// realBox is a box of the kernel's own.
func realBox(t *testing.T) (*local.Driver, sandbox.Spec) {
	t.Helper()
	home, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	d, err := local.New(local.Config{Home: home, Boxd: boxd.Local, LimitsMode: sandbox.LimitsBestEffort, Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(home)})
	if err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{Box: session.Box(), Dir: filepath.Join(home, "s"), LimitsMode: sandbox.LimitsBestEffort}
	if os.Getuid() == 0 {
		spec.BoxdUID, spec.ToolUID = 1_879_050_000, 1_879_050_001
	}
	if _, err := d.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Remove(context.WithoutCancel(t.Context()), spec.Box) })
	return d, spec
}
