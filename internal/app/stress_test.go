package app_test

import (
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
				began := time.Now()
				for ev, err := range c.Follow(t.Context(), ses.ID, sent.Seq) {
					if err != nil {
						t.Error(err)
						return
					}
					if ev.Turn == sent.Turn.ID && ev.EndsTurn() {
						break
					}
				}
				if d := time.Since(began); d > time.Second {
					t.Errorf("worker %d turn %d: %v", w, k, d)
				}
			}
		})
	}
	all.Wait()
}
