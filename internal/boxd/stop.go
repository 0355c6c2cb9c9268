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
	// stopWait is how long a stop tries to kill all processes and waits for the outcomes of their calls.
	stopWait = 10 * time.Second
	// farewell is how long a stop waits for open streams to send their last answers.
	farewell = 500 * time.Millisecond
	// closeWait is how long a stop waits for the goroutines of the Server after it has closed all connections.
	closeWait = 5 * time.Second
)

// signaller is an optional interface of Hands for a stop: it also reaches processes that boxd cannot assign to a call.
type signaller interface {
	// SignalAll signals all processes of the box except boxd, and returns how many it found.
	SignalAll(signal int) int
}

// Stop ends the box: it sends all processes SIGTERM and after grace SIGKILL, saves the outcomes in the
// state directory, and makes Serve return. If grace is 0, it sends only SIGKILL. Stop may be called several
// times and concurrently. Each call returns when the box has ended; only the first returns a full answer.
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

// serveStop serves OpStop. It does the same as Stop, and sends its answer before the connections are closed.
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
	// Wait until the client closes its side of the stream, which it does when it has the answer: if the
	// connection were closed before, the answer could be lost.
	_ = stream.SetReadDeadline(time.Now().Add(taken))
	_, _ = io.Copy(io.Discard, stream)
	s.load.streams.Add(-1) // finish waits for open streams, but must not wait for this one
	s.finish()
	s.load.streams.Add(1)
	return err
}

// taken is how long serveStop waits for the client to close its side of the stream after the answer.
const taken = 200 * time.Millisecond

// beginStop returns true to the first caller, which must then end the box, and false to all others.
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

// endBox ends all processes and saves the outcomes. It does nothing if first is false.
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

// agents returns the pids of the first processes of running calls with a line protocol: agents that the
// server itself runs. The answer of a stop does not list them among the processes that ended with the box.
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

// endProcesses sends all processes SIGTERM, waits up to grace, sends SIGKILL, and waits until all calls have outcomes, up
// to stopWait. If grace is 0, it sends no SIGTERM.
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
			if grace > 0 && e.tty != nil && e.proc != nil { // an interactive shell ignores SIGTERM but not SIGHUP
				_ = s.cfg.Hands.Signal(e.proc, int(syscall.SIGHUP))
			}
		case <-time.After(time.Until(until)):
		}
	}
	gone := func() bool {
		procs, err := s.cfg.Hands.Processes()
		return err == nil && len(procs) == 0
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

// poll calls done, with a pause after each call, until done returns true or the time until is reached.
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

// finish closes the listener, waits up to farewell for open streams to send their last answers, and then
// closes all connections and s.stopped. Only its first call does so.
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

// waitHandlers waits until the goroutines of the Server have ended, but at most for closeWait.
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
