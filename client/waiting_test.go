package client

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// TestWaitingIsCalledOnceAtATime: a connection that breaks during a call of Config.Waiting causes the next call only after it,
// and none comes after the end of the wait.
func TestWaitingIsCalledOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var said []string
		inside, entered, leave := 0, make(chan struct{}, 8), make(chan struct{})
		c := piped(t, Config{Waiting: func(w Wait) {
			mu.Lock()
			inside++
			if inside > 1 {
				t.Errorf("called twice at once: %s", w)
			}
			said = append(said, fmt.Sprintf("%v %t", w.Err, w.Over))
			mu.Unlock()
			entered <- struct{}{}
			<-leave
			mu.Lock()
			inside--
			mu.Unlock()
		}}, func(net.Conn) error { return nil })
		defer c.Close()
		w := c.newWait()
		w.begin(nil)
		<-entered // by the timer, because no answer came
		go w.begin(errors.New("broken"))
		synctest.Wait()
		leave <- struct{}{}
		<-entered
		ended := make(chan struct{})
		go func() {
			w.end(true)
			close(ended)
		}()
		synctest.Wait()
		late := make(chan struct{})
		go func() {
			w.tell()
			close(late)
		}()
		synctest.Wait()
		close(leave)
		<-ended
		<-late
		if got := strings.Join(said, ", "); got != "<nil> false, broken false, <nil> true" {
			t.Errorf("said %s", got)
		}
	})
}
