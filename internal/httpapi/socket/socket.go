// Package socket has the WebSocket connections of the API: terminals, and editors that lend unsaved texts.
//
// Only httpapi may import it; it imports the vocabulary, the clock and the editors of sessions. Invariant: a message from a client
// is bounded and strictly decoded, and a client that answers no ping in time is cut off.
package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/unsaved"
)

// Check refuses a request that is not a WebSocket handshake. hint says how to make one.
func Check(r *http.Request, op, hint string) error {
	upgrade := slices.ContainsFunc(strings.Split(r.Header.Get("Connection"), ","), func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), "upgrade") })
	if r.Method == http.MethodGet && upgrade && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		r.Header.Get("Sec-WebSocket-Version") == "13" && len(r.Header.Get("Sec-WebSocket-Key")) == 24 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, op, "the request is not a WebSocket handshake").WithHint("%s", hint)
}

// Decode decodes a text message; one with unknown fields is refused.
func Decode(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// Resize parses a text message from the client of a terminal, which has to be a new window size.
func Resize(data []byte) (holdfast.TermSize, error) {
	var m struct {
		Resize *holdfast.TermSize `json:"resize"`
	}
	err := Decode(data, &m)
	if err != nil || m.Resize == nil || !sane(m.Resize.Rows) || !sane(m.Resize.Cols) {
		return holdfast.TermSize{}, holdfast.Errorf(holdfast.KindInvalid, "terminal", "%s is not a valid terminal control message", holdfast.Quote(string(data))).
			WithHint(`send {"resize":{"rows":24,"cols":80}}; typed keys are sent as binary messages`)
	}
	return *m.Resize, nil
}

func sane(n uint16) bool { return n >= 1 && n <= 1000 }

// Conn is the connection to a client, for as long as Ctx lasts.
type Conn struct {
	*websocket.Conn
	Ctx context.Context //nolint:containedctx // that of the one request
	// Limit is how long the client may take to accept a message or to answer a ping.
	Limit time.Duration
}

// Pings sends WebSocket pings at intervals, and calls dead when the client does not answer one.
func (c *Conn) Pings(every time.Duration, dead context.CancelFunc) {
	for clock.Pause(c.Ctx, every) == nil {
		ctx, cancel := context.WithTimeout(c.Ctx, c.Limit)
		err := c.Ping(ctx)
		cancel()
		if err != nil {
			dead()
			return
		}
	}
}

// tell sends a message as JSON text.
func (c *Conn) tell(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Ctx, c.Limit)
	defer cancel()
	return c.Write(ctx, websocket.MessageText, data)
}

// MaxLent is the largest message from an editor, in bytes: JSON may take six bytes for one byte of the text.
const MaxLent = 6*unsaved.MaxText + 1024

// question is the JSON message that asks an editor for the unsaved text of a file; lent is the editor's answer.
type question struct {
	ID   int64  `json:"id"`
	Path string `json:"path"`
}

type lent struct {
	ID      int64  `json:"id"`
	Unsaved bool   `json:"unsaved"`
	Text    string `json:"text"`
	Why     string `json:"why"`
}

// Lend passes questions to an editor and its answers back, until either side leaves or cancel is called.
func (c *Conn) Lend(one *unsaved.Editor, ping time.Duration, cancel context.CancelFunc) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { c.Pings(ping, cancel) })
	wg.Go(func() {
		defer cancel()
		c.hear(one)
	})
	for {
		select {
		case <-c.Ctx.Done():
			return
		case q := <-one.Questions():
			if c.tell(question(q)) != nil {
				return
			}
		}
	}
}

// hear passes the answers of an editor on, until the editor disconnects or sends a message that is not a valid answer.
func (c *Conn) hear(one *unsaved.Editor) {
	for {
		typ, data, err := c.Read(c.Ctx)
		if err != nil {
			return
		}
		var m lent
		if typ != websocket.MessageText || Decode(data, &m) != nil {
			_ = c.Close(websocket.StatusPolicyViolation, "the message is not an answer")
			return
		}
		// Ignore the error: an answer that comes too late, or that cannot be used, has no effect, because the tool that
		// asked got an error.
		_ = one.Answer(m.ID, unsaved.Answer{Unsaved: m.Unsaved, Text: m.Text, Why: m.Why})
	}
}
