package app_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

func TestFollowersMissNothing(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
			if err != nil {
				t.Error(err)
				return
			}
			for k := range 40 {
				sent, err := c.Send(t.Context(), ses.ID, holdfast.SendMessage{Text: fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":"echo at work; sleep 0.0%d"}},{"say":"ok %d"}]</script>`, k%5, w)})
				if err != nil {
					t.Error(err)
					return
				}
				// A wakeup that is lost shows as a follower that waits for ever.
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				for ev, err := range c.Follow(ctx, ses.ID, sent.Seq) {
					if err != nil {
						cancel()
						t.Errorf("worker %d turn %d: %v", w, k, err)
						return
					}
					if ev.Turn == sent.Turn.ID && ev.EndsTurn() {
						break
					}
				}
				cancel()
			}
		})
	}
	all.Wait()
}
