package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
)

func TestDeliveriesArriveInOrder(t *testing.T) {
	b, r := &box{}, &receiver{}
	bubble(t, r, b, func(t *testing.T, d *Deliverer) {
		for i := range 40 {
			b.put([]string{"a", "b"}[i%2], int64(i), holdfast.EventTurnCompleted, `{"number":1}`)
		}
		d.Wake()
		synctest.Wait()
		if b.left() != 0 || len(r.all()) != 40 {
			t.Fatalf("%d left, %d arrived", b.left(), len(r.all()))
		}
	})
	last := map[holdfast.SessionID]int64{}
	for _, g := range r.all() {
		if g.body.Seq < last[g.body.Session] {
			t.Errorf("#%d of %s after #%d", g.body.Seq, g.body.Session, last[g.body.Session])
		}
		last[g.body.Session] = g.body.Seq
	}
	if g := r.all()[0].body; string(g.Data) != `{"number":1}` || g.Turn != "t" || g.Time.IsZero() || g.Answer != nil {
		t.Errorf("%+v", g)
	}
}

// TestAFailureIsTriedAgain: 500, then 200; a redirect is a failure and not
// followed; later ones of the session wait for it.
func TestAFailureIsTriedAgain(t *testing.T) {
	for _, status := range []int{500, 404, 302, 307} {
		b := &box{}
		r := &receiver{answer: func(n int, _ holdfast.Webhook) int {
			if n <= 3 {
				return status
			}
			return 200
		}}
		bubble(t, r, b, func(t *testing.T, d *Deliverer) {
			b.put("a", 1, holdfast.EventTurnCompleted, `{}`)
			b.put("a", 2, holdfast.EventTurnCompleted, `{}`)
			d.Wake()
			pass(time.Minute)
			if b.left() != 0 {
				t.Errorf("%d: %d left", status, b.left())
			}
		})
		got := r.all()
		if len(got) != 5 {
			t.Fatalf("%d: %d requests", status, len(got))
		}
		for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			if d := got[i+1].at.Sub(got[i].at); d != wait || got[i+1].id != got[0].id {
				t.Errorf("%d: try %d after %s, id %s, first %s", status, i+2, d, got[i+1].id, got[0].id)
			}
		}
		if got[4].body.Seq != 2 || got[4].id == got[0].id {
			t.Errorf("%d: last %+v", status, got[4])
		}
	}
}

// TestAReceiverThatStaysDown is given up after a day with a notice, and until then
// holds up its session for minutes only.
func TestAReceiverThatStaysDown(t *testing.T) {
	b := &box{}
	r := &receiver{answer: func(_ int, w holdfast.Webhook) int {
		if w.Seq == 1 {
			return 503
		}
		return 200
	}}
	bubble(t, r, b, func(t *testing.T, d *Deliverer) {
		b.put("a", 1, holdfast.EventApprovalAsked, `{"id":"x"}`)
		b.put("a", 2, holdfast.EventTurnCompleted, `{}`)
		d.Wake()
		pass(time.Minute)
		if b.left() != 2 {
			t.Errorf("after a minute %d left", b.left())
		}
		pass(9 * time.Minute)
		if b.left() != 1 {
			t.Errorf("after ten minutes %d left", b.left())
		}
		pass(23 * time.Hour)
		if b.left() != 1 || len(b.log) != 0 {
			t.Errorf("after 23 hours %d left, %v", b.left(), b.log)
		}
		pass(3 * time.Hour)
		if b.left() != 0 || len(b.log) != 1 {
			t.Fatalf("after 26 hours %d left, %v", b.left(), b.log)
		}
	})
	c := b.log[0]
	n, ok := c.Events[0].Data.(holdfast.Notice)
	if c.Session != "a" || !slices.Equal(c.Undelivered, []int64{1}) || len(c.Events) != 1 || !ok || n.Code != NoticeCode || strings.Contains(n.Text, "example") {
		t.Errorf("%+v", c)
	}
	if n := len(r.all()); n < 25 || n > 50 {
		t.Errorf("%d requests in a day", n)
	}
}

func TestAGivenUpDeliveryOfADeletedSession(t *testing.T) {
	b := &box{gone: true}
	r := &receiver{answer: func(int, holdfast.Webhook) int { return 500 }}
	bubble(t, r, b, func(t *testing.T, d *Deliverer) {
		b.put("a", 1, holdfast.EventTurnCompleted, `{}`)
		d.Wake()
		pass(26 * time.Hour)
		if b.left() != 0 {
			t.Errorf("%d left", b.left())
		}
	})
}

// TestASlowReceiver is cut, holds up nobody else's session for longer, and keeps
// no shutdown waiting.
func TestASlowReceiver(t *testing.T) {
	b, r := &box{}, &receiver{}
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body) // reading on is how a server notices that the other side left
		if err == nil && bytes.Contains(body, []byte(holdfast.EventTurnFailed)) {
			<-req.Context().Done()
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		r.ServeHTTP(w, req)
	})
	bubble(t, h, b, func(t *testing.T, d *Deliverer) {
		b.put("slow", 1, holdfast.EventTurnFailed, `{}`)
		b.put("fast", 1, holdfast.EventTurnCompleted, `{}`)
		d.Wake()
		synctest.Wait()
		if len(r.all()) != 1 {
			t.Errorf("%d arrived beside a slow one", len(r.all()))
		}
		pass(timeout)
		b.mu.Lock()
		attempts := b.rows[0].Attempts
		b.mu.Unlock()
		if attempts != 1 {
			t.Errorf("%d attempts after the timeout", attempts)
		}
		pass(2 * time.Second) // the next attempt is under way
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		d.Close(ctx)
		if took := time.Since(began); took != 3*time.Second || b.left() != 1 {
			t.Errorf("closing took %s, %d left", took, b.left())
		}
	})
}

// TestTheShutdownLetsARequestEnd and begins no other.
func TestTheShutdownLetsARequestEnd(t *testing.T) {
	b := &box{}
	r := &receiver{}
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		<-time.After(2 * time.Second)
		r.ServeHTTP(w, req)
	})
	bubble(t, h, b, func(t *testing.T, d *Deliverer) {
		b.put("a", 1, holdfast.EventTurnCompleted, `{}`)
		b.put("a", 2, holdfast.EventTurnCompleted, `{}`)
		d.Wake()
		synctest.Wait()
		d.Close(t.Context())
		if b.left() != 1 || len(r.all()) != 1 {
			t.Errorf("%d left, %d arrived", b.left(), len(r.all()))
		}
	})
}

// TestAStoreThatFails is asked again after a while, not at once.
func TestAStoreThatFails(t *testing.T) {
	b, r := &box{broken: errors.New("read-only")}, &receiver{}
	bubble(t, r, b, func(t *testing.T, d *Deliverer) {
		b.put("a", 1, holdfast.EventTurnCompleted, `{}`)
		d.Wake()
		pass(time.Minute)
		if len(r.all()) > 13 {
			t.Errorf("%d requests in a minute", len(r.all()))
		}
		b.mu.Lock()
		b.broken = nil
		b.mu.Unlock()
		pass(storeWait)
		if b.left() != 0 {
			t.Errorf("%d left", b.left())
		}
	})
}

// TestAFloodingReceiver has its answer cut, and its headers.
func TestAFloodingReceiver(t *testing.T) {
	flood := func(w http.ResponseWriter, headers bool) {
		if headers {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}
		w.WriteHeader(http.StatusOK)
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	for _, headers := range []bool{false, true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { flood(w, headers) }))
		b := &box{}
		b.put("a", 1, holdfast.EventTurnCompleted, `{}`)
		d := New(Config{Store: b, Journal: b, Now: time.Now, Rand: func() float64 { return 0 }, Warn: func(error) {}})
		err := d.post(t.Context(), hook(srv.URL), b.rows[0])
		if (err != nil) != headers {
			t.Errorf("headers %v: %v", headers, err)
		}
		d.Close(t.Context())
		srv.Close()
	}
}

func TestAnErrorDoesNotTellTheURL(t *testing.T) {
	d := New(Config{Now: time.Now})
	defer d.Close(t.Context())
	for _, u := range []string{"http://127.0.0.1:1/token-in-the-path", "http://[::1/token-in-the-path"} {
		if err := d.post(t.Context(), hook(u), Delivery{}); err == nil || strings.Contains(err.Error(), "token-in") {
			t.Errorf("%s: %v", u, err)
		}
	}
}

func TestAnApprovalSaysHowToAnswer(t *testing.T) {
	body, err := Delivery{Event: holdfast.Event{Type: holdfast.EventApprovalAsked, Data: json.RawMessage(`{"id":"01890a5d","tool":"Bash"}`)}}.body()
	if err != nil {
		t.Fatal(err)
	}
	want := `"answer":{"allow":"holdfast approvals allow 01890a5d","deny":"holdfast approvals deny 01890a5d","api":"POST /v1/approvals/01890a5d"}`
	if !bytes.Contains(body, []byte(want)) {
		t.Errorf("%s", body)
	}
}

func TestNamesAndFilter(t *testing.T) {
	a, b := hook("https://a.example/x"), hook("https://b.example/x")
	b.Events = []holdfast.EventType{holdfast.EventBoxOOM}
	f := Filter([]Hook{a, b, b})
	if got := f(holdfast.EventBoxOOM); !slices.Equal(got, []string{a.Name(), b.Name()}) {
		t.Errorf("%v", got)
	}
	if got := f(holdfast.EventTurnFailed); !slices.Equal(got, []string{a.Name()}) {
		t.Errorf("%v", got)
	}
	if got := f(holdfast.EventMessageUser); got != nil {
		t.Errorf("%v", got)
	}
	one, two := Delivery{Hook: "h", Event: holdfast.Event{Session: "s", Seq: 1}}, Delivery{Hook: "h", Event: holdfast.Event{Session: "s", Seq: 2}}
	if one.ID() == two.ID() || len(one.ID()) != 32 {
		t.Errorf("%s %s", one.ID(), two.ID())
	}
}

// TestSign: each secret's holder can verify a delivery, nobody else can, and no part of it can be
// changed. The signature is that of the specification's own example.
func TestSign(t *testing.T) {
	first, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	const id, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`
	if err := sign(header, [][]byte{first}, id, time.Unix(1614265330, 0), []byte(body)); err != nil {
		t.Fatal(err)
	}
	if got := header.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("signature %s", got)
	}
	second := []byte("another secret of the receiver")
	if err := sign(header, [][]byte{first, second}, id, time.Now(), []byte(body)); err != nil {
		t.Fatal(err)
	}
	for _, secret := range [][]byte{first, second} {
		if err := verify(secret, []byte(body), header); err != nil {
			t.Error(err)
		}
	}
	if err := verify([]byte("the secret of somebody else"), []byte(body), header); err == nil {
		t.Error("another secret verifies the delivery")
	}
	if err := verify(first, []byte(body+" "), header); err == nil {
		t.Error("a changed body verifies")
	}
	for _, name := range []string{"webhook-id", "webhook-timestamp"} {
		changed := header.Clone()
		changed.Set(name, header.Get(name)+"1")
		if err := verify(first, []byte(body), changed); err == nil {
			t.Errorf("a changed %s verifies", name)
		}
	}
}

func TestParseSecret(t *testing.T) {
	long := base64.StdEncoding.EncodeToString(make([]byte, maxSecret+1))
	for _, text := range []string{"", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "whsec_c2hvcnQ=", "whsec_" + long} {
		if _, err := ParseSecret(text); !holdfast.IsKind(err, holdfast.KindInvalid) || text != "" && strings.Contains(err.Error(), text[max(0, len(text)-8):]) && len(text) > 6 {
			t.Errorf("%q: %v", text, err)
		}
	}
}
