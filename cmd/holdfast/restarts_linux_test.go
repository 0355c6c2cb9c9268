package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestHZ23_SendOutlastsRestarts: the server dies three times in a silent turn and comes
// back on another port each time. The command finds it by the address in the data
// directory, says what it waits for, and shows the turn to its end.
func TestHZ23_SendOutlastsRestarts(t *testing.T) {
	data := t.TempDir()
	p := launch(t, data, "--set", "orphan_after=5m")
	s, err := p.CreateSession(t.Context(), holdfast.CreateSession{Mode: "bypassPermissions"}, "")
	if err != nil {
		t.Fatal(err)
	}
	id := s.ID
	vars := map[string]string{"HOLDFAST_HOME": data, "HOME": data}
	var out bytes.Buffer
	var errs screen
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), []string{"send", string(id), `<script>[{"tool":"Bash","input":{"command":"until [ -e go ]; do sleep 0.05; done"}},{"say":"done at last"}]</script>`},
			func(k string) string { return vars[k] }, strings.NewReader(""), &out, &errs)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the command said:\n%s\nthe server:\n%s", errs.String(), p.log.String())
		}
	})
	testkit.Eventually(t, "the tool runs", func() bool { return strings.Contains(errs.String(), "box started") })
	for n := 1; n <= 3; n++ {
		p.signal(syscall.SIGKILL)
		p.wait()
		testkit.Eventually(t, "the wait is said", func() bool { return strings.Count(errs.String(), "to come back") >= n })
		p = launch(t, data, "--set", "orphan_after=5m")
		testkit.Eventually(t, "the command finds the server", func() bool { return strings.Count(errs.String(), p.url+" answers again") == 1 })
	}
	if _, err := p.Exec(t.Context(), id, holdfast.ExecRequest{Command: "touch go"}); err != nil {
		t.Fatal(err)
	}
	got := -1
	testkit.Eventually(t, "the command ends", func() bool {
		select {
		case got = <-code:
			return true
		default:
			return false
		}
	})
	if got != 0 || out.String() != "done at last\n" {
		t.Errorf("%d %q\n%s", got, out.String(), errs.String())
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	if left := testkit.Glob(data, "address*"); len(left) > 0 {
		t.Errorf("a server that stopped leaves %v", left)
	}
}

// TestSendSaysHowToGoOn: another server has the port after the connection broke. The
// command says so, says that the message is accepted, and how to see its turn.
func TestSendSaysHowToGoOn(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	var calls atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Holdfast-Turn", "t")
			w.Header().Set("Holdfast-Seq", "4")
			_, _ = io.WriteString(w, "id: 5\nevent: turn.started\ndata: {\"seq\":5,\"turn_id\":\"t\",\"type\":\"turn.started\",\"data\":{}}\n\n")
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"kind":"unauthenticated","detail":"the token of the request is not valid for this server"}`)
	}))
	defer srv.Close()
	vars := map[string]string{"HOLDFAST_URL": srv.URL, "HOLDFAST_TOKEN": "t"}
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"send", id, "hi"}, func(k string) string { return vars[k] }, strings.NewReader(""), &out, &errs)
	if code != 5 {
		t.Errorf("code %d", code)
	}
	for _, want := range []string{"another server", srv.URL, "the message is accepted", "holdfast session events " + id + " --after 5 --follow"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("not said: %q in\n%s", want, errs.String())
		}
	}
}
