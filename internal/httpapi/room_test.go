package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
)

// watched calls a function when a message is accepted.
type watched struct {
	Sessions
	send func()
}

func (w watched) Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	w.send()
	return w.Sessions.Send(ctx, id, msg)
}

// TestLargeBodiesWaitForRoom: while a message that fills the room is handled another large
// one waits, and is refused after a while. A running command holds no room.
func TestLargeBodiesWaitForRoom(t *testing.T) {
	var during func()
	f, srv := start(t, func(c *Config) {
		c.Waits.Read = 2 * time.Second
		c.Sessions = watched{c.Sessions, func() {
			if once := during; once != nil {
				during = nil
				once()
			}
		}}
	})
	one := "/v1/sessions/" + string(createOne(t, srv))
	message := func() (*http.Response, []byte) {
		return do(t, srv, request{"POST", one + "/turns", fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 2<<20)), nil})
	}
	// filled is a body of the largest size.
	filled := func(format string) string {
		return fmt.Sprintf(format, "") + strings.Repeat(" ", body.Large-1-len(fmt.Sprintf(format, "")))
	}
	ran := false
	f.exec = func(context.Context, holdfast.ExecRequest, io.Writer, io.Writer) (holdfast.ExecResult, error) {
		ran = true
		if resp, text := message(); resp.StatusCode != http.StatusAccepted {
			t.Errorf("while a command runs: %d %s", resp.StatusCode, text)
		}
		return holdfast.ExecResult{}, nil
	}
	if resp, text := do(t, srv, request{"POST", one + "/exec", filled(`{"argv":["cat"]}%s`), nil}); resp.StatusCode != http.StatusOK || !ran {
		t.Fatalf("%d %s, ran %t", resp.StatusCode, text, ran)
	}
	during = func() {
		resp, text := message()
		wantProblem(t, resp, text, http.StatusTooManyRequests, holdfast.KindBusy)
		if resp.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if resp, text := do(t, srv, request{"POST", one + "/turns", filled(`{"text":"x"}%s`), nil}); resp.StatusCode != http.StatusAccepted || during != nil {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	if resp, text := message(); resp.StatusCode != http.StatusAccepted {
		t.Errorf("after the answer: %d %s", resp.StatusCode, text)
	}
}
