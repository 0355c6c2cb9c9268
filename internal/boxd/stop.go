package boxd

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// stopWait is how long a stop waits for calls to end after all processes were killed.
	stopWait = 10 * time.Second
	// farewell is how long attached streams may take to deliver their last answer.
	farewell = 500 * time.Millisecond
	// closeWait is how long a stop waits for handlers after it closed their connections.
	closeWait = 5 * time.Second
)

// signaller is an optional method of Hands for a stop: it reaches every process, also those that
// escaped from the calls that started them.
type signaller interface {
	// SignalAll signals every process of the box except boxd and returns how many there were.
	SignalAll(signal int) int
}

// Stop ends everything in the box: SIGTERM, after grace SIGKILL, then it saves the outcomes in
// the state directory. Serve returns after it. Stop may be called several times and concurrently;
// each call returns when the box has ended.
func (s *Server) Stop(grace time.Duration, reason string) wire.StopAnswer {
	first := s.beginStop()
	a := s.endBox(first, grace, reason)
	if first {
		s.finish()
	}
	<-s.stopped
	s.waitHandlers()
	return a
}

// serveStop is Stop on request: the answer leaves before the connections close.
func (s *Server) serveStop(p *peer, stream *yamux.Stream, req wire.Request) error {
	b, err := body[wire.StopRequest](req)
	if err != nil {
		return err
	}
	first := false
	if err := s.led.guard(p, func() { first = s.beginStop() }); err != nil {
		return err
	}
	a := s.endBox(first, millis(b.GraceMS), b.Reason)
	if !first {
		<-s.stopped
		return answer(stream, a)
	}
	// A client that does not read the answer must not keep the box from ending.
	t := time.AfterFunc(farewell, s.finish)
	defer t.Stop()
	err = answer(stream, a)
	_ = stream.Close()
	// The client closes its side once it has the answer. If the connection closed before that,
	// the answer could be lost.
	_ = stream.SetReadDeadline(time.Now().Add(taken))
	_, _ = io.Copy(io.Discard, stream)
	s.load.streams.Add(-1) // finish must not wait for this stream
	s.finish()
	s.load.streams.Add(1)
	return err
}

// taken is how long serveStop waits for the client to confirm the answer by closing its side.
const taken = 200 * time.Millisecond

// beginStop returns true for the first caller, who has to end the box.
func (s *Server) beginStop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.stopping = true
	if s.orphan != nil {
		s.orphan.Stop()
	}
	return true
}

// endBox ends all processes and saves the outcomes.
func (s *Server) endBox(first bool, grace time.Duration, reason string) wire.StopAnswer {
	a := wire.StopAnswer{Processes: []string{}}
	if !first {
		return a
	}
	s.led.stop()
	agents := s.agents()
	if procs, err := s.cfg.Hands.Processes(); err == nil {
		for _, p := range procs {
			if !agents[p.PID] {
				a.Processes = append(a.Processes, fmt.Sprintf("%d %s", p.PID, p.Name))
			}
		}
	}
	s.endProcesses(grace, reason)
	s.links.close()
	if err := s.saveOutcomes(); err != nil {
		a.Unsaved = err.Error()
	}
	return a
}

// agents returns the pids of the processes that speak a line protocol with the server. A stop
// does not list them among the processes that it cut off.
func (s *Server) agents() map[int]bool {
	out := map[int]bool{}
	for _, c := range s.led.held() {
		if c.exec == nil || !c.exec.req.Lines || c.finished() {
			continue
		}
		select {
		case <-c.exec.started:
			if c.exec.proc != nil {
				out[c.exec.proc.PID()] = true
			}
		default:
		}
	}
	return out
}

// endProcesses sends SIGTERM, waits for grace, sends SIGKILL, and waits until all calls have outcomes.
func (s *Server) endProcesses(grace time.Duration, reason string) {
	detail := strings.TrimSuffix("box stopped: "+reason, ": ")
	var running []*execution
	for _, c := range s.led.held() {
		if c.exec != nil && !c.finished() && c.exec.beginKill(endStopped, detail) {
			running = append(running, c.exec)
		}
	}
	until := time.Now().Add(stopWait)
	for _, e := range running {
		select {
		case <-e.started:
			if grace > 0 && e.tty != nil && e.proc != nil { // a shell on a terminal ignores SIGTERM
				_ = s.cfg.Hands.Signal(e.proc, int(syscall.SIGHUP))
			}
		case <-time.After(time.Until(until)):
		}
	}
	gone := func() bool {
		procs, err := s.cfg.Hands.Processes()
		return err != nil || len(procs) == 0
	}
	if grace > 0 {
		s.signalAll(running, syscall.SIGTERM)
		s.signalAll(running, syscall.SIGCONT)
		poll(time.Now().Add(grace), 5*time.Millisecond, gone)
	}
	until = time.Now().Add(stopWait)
	poll(until, 2*time.Millisecond, func() bool {
		s.signalAll(running, syscall.SIGKILL)
		return gone()
	})
	for _, e := range running {
		e.kills.Done()
	}
	poll(until, time.Millisecond, func() bool {
		_, n := s.led.counts()
		return n == 0
	})
}

// poll calls done, with pauses, until it returns true or the time is up.
func poll(until time.Time, pause time.Duration, done func() bool) {
	for time.Now().Before(until) && !done() {
		time.Sleep(pause)
	}
}

func (s *Server) signalAll(running []*execution, sig syscall.Signal) {
	if sa, ok := s.cfg.Hands.(signaller); ok {
		sa.SignalAll(int(sig))
		return
	}
	for _, e := range running {
		if e.proc == nil {
			continue // the process never started
		}
		if sig == syscall.SIGKILL {
			s.cfg.Hands.KillAll(e.mark)
			continue
		}
		_ = s.cfg.Hands.Signal(e.proc, int(sig))
	}
}

// finish closes the listener, gives open streams time to send their last answers, and then closes
// every connection.
func (s *Server) finish() {
	s.finishOnce.Do(func() {
		s.mu.Lock()
		if s.listener != nil {
			_ = s.listener.Close()
		}
		s.mu.Unlock()
		poll(time.Now().Add(farewell), time.Millisecond, func() bool { return s.load.streams.Load() <= 0 })
		s.mu.Lock()
		for c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		for _, c := range s.led.held() {
			if c.exec != nil {
				c.exec.close()
			}
		}
		_ = s.null.Close()
		close(s.stopped)
	})
}

// waitHandlers waits for the server's goroutines, for closeWait at most.
func (s *Server) waitHandlers() {
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeWait):
	}
}
