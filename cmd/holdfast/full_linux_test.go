package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestASH28_AMessageToAFullServer: the only place is taken by a running turn. A message
// to another session is 503 with Retry-After and nothing of it is recorded. A client
// and the command line say that they wait, and each message runs once when there is a
// place.
func TestASH28_AMessageToAFullServer(t *testing.T) {
	data := testkit.BaseDir(t)
	p := launch(t, data, "--set", "max_boxes=1")
	busy, plain, lib, cli := p.session(), p.session(), p.session(), p.session()
	running := p.gated(busy)
	raw, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(raw))
	post := func(body string) (int, http.Header, holdfast.Problem) { return p.post(plain, token, body) }
	work := `<script>[{"tool":"Bash","input":{"command":"echo line >> log.txt"}},{"say":"done"}]</script>`
	body, err := json.Marshal(holdfast.SendMessage{Text: work})
	if err != nil {
		t.Fatal(err)
	}
	before, err := p.Session(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	code, head, problem := post(string(body))
	if code != http.StatusServiceUnavailable || head.Get("Retry-After") != "5" || !problem.Full() || problem.Hint == "" {
		t.Errorf("%d, Retry-After %q, %+v", code, head.Get("Retry-After"), problem)
	}
	if after, err := p.Session(t.Context(), plain); err != nil || after.LastSeq != before.LastSeq {
		t.Errorf("recorded of a message that was refused: events %d to %d, %v", before.LastSeq, after.LastSeq, err)
	}

	turn := p.waitsForItsPlace(token, busy, lib, cli, work)
	p.completed(busy, running)
	p.completed(lib, turn)
	testkit.Eventually(t, "the key that was refused is taken", func() bool { code, _, _ := post(string(body)); return code == http.StatusAccepted })
	if code, head, _ := post(string(body)); code != http.StatusAccepted || head.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %d", code)
	}
	turns, err := p.Turns(t.Context(), plain, 0, 0)
	if err != nil || len(turns) != 1 {
		t.Fatalf("turns = %+v, %v", turns, err)
	}
	p.completed(plain, turns[0].ID)
	for _, id := range []holdfast.SessionID{plain, lib, cli} {
		if got := p.file(id, "log.txt"); got != "line\n" {
			t.Errorf("the message to %s left %q", id, got)
		}
	}
	p.signal(os.Interrupt)
	p.wait()
}

// post sends a message as it is, with one key for all.
func (p *process) post(id holdfast.SessionID, token, body string) (int, http.Header, holdfast.Problem) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/v1/sessions/"+string(id)+"/turns", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for k, v := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json", "Idempotency-Key": "k"} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	var problem holdfast.Problem
	if resp.StatusCode >= 400 {
		if err := json.Unmarshal(got, &problem); err != nil {
			p.t.Fatalf("%d %s", resp.StatusCode, got)
		}
	}
	return resp.StatusCode, resp.Header, problem
}

// completed waits for the end of a turn.
func (p *process) completed(id holdfast.SessionID, turn holdfast.TurnID) {
	p.t.Helper()
	testkit.Eventually(p.t, "the turn is over", func() bool {
		now, err := p.Turn(p.t.Context(), id, turn)
		return err == nil && now.Status == holdfast.TurnCompleted
	})
}

// refusedSoon checks that a client begins no wait that it could not end in its time.
func (p *process) refusedSoon(token string, lib holdfast.SessionID, work string) {
	p.t.Helper()
	quick, err := client.New(client.Config{URL: p.url, Token: token, ReconnectFor: 4 * time.Second})
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = quick.Send(p.t.Context(), lib, holdfast.SendMessage{Text: work, Key: "k"})
	if !errors.Is(err, holdfast.ErrFull) || holdfast.HintOf(err) == "" || client.RetryAfter(err) != 5*time.Second {
		p.t.Errorf("error %v", err)
	}
}

// waitsForItsPlace sends a message with the client and one with the command line to a
// full server, ends the turn that fills it when both say that they wait, and returns the
// client's turn.
func (p *process) waitsForItsPlace(token string, busy, lib, cli holdfast.SessionID, work string) holdfast.TurnID {
	p.t.Helper()
	p.refusedSoon(token, lib, work)
	waits := make(chan client.Wait, 10)
	patient, err := client.New(client.Config{URL: p.url, Token: token, Waiting: func(w client.Wait) { waits <- w }})
	if err != nil {
		p.t.Fatal(err)
	}
	type outcome struct {
		sent holdfast.Sent
		err  error
	}
	sent, exit := make(chan outcome, 1), make(chan int, 1)
	go func() {
		s, err := patient.Send(p.t.Context(), lib, holdfast.SendMessage{Text: work, Key: "k"})
		sent <- outcome{s, err}
	}()
	var out, errs screen
	vars := map[string]string{"HOLDFAST_URL": p.url, "HOLDFAST_TOKEN": token, "HOLDFAST_HOME": p.data}
	go func() {
		exit <- run(p.t.Context(), []string{"send", string(cli), work}, func(k string) string { return vars[k] }, strings.NewReader(""), &out, &errs)
	}()
	testkit.Eventually(p.t, "the client hears that the server is full", func() bool {
		select {
		case w := <-waits:
			return errors.Is(w.Err, holdfast.ErrFull)
		default:
			return false
		}
	})
	testkit.Eventually(p.t, "the command says that it waits", func() bool {
		return strings.Contains(errs.String(), "waiting for a place: pool: all 1 boxes are running")
	})
	if _, err := p.WriteFile(p.t.Context(), busy, "go", strings.NewReader(""), 0o600); err != nil {
		p.t.Fatal(err)
	}
	got := <-sent
	if code := <-exit; code != 0 || !strings.Contains(out.String(), "done") {
		p.t.Errorf("send ended with %d: %s\n%s", code, out.String(), errs.String())
	}
	if got.err != nil {
		p.t.Fatal(got.err)
	}
	return got.sent.Turn.ID
}
