package boxd

import (
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// stopWait is how long calls may take to end after everything was killed.
	stopWait = 10 * time.Second
	// farewell is how long attached streams may take to deliver their last answer.
	farewell = 500 * time.Millisecond
	// closeWait is how long handlers may take after their connections were closed.
	closeWait = 5 * time.Second
)

// signaller is what Hands may offer for a stop: to reach every process, those
// that left the calls they came from included.
type signaller interface {
	// SignalAll signals every process of the box but boxd and says how many
	// there were.
	SignalAll(signal int) int
}

// Stop ends everything in the box: SIGTERM, SIGKILL after grace, outcomes
// flushed to the state directory. Serve returns after it. It may be called again
// and by several; all return when the box has ended.
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
	// A client that does not take the answer must not keep the box.
	t := time.AfterFunc(farewell, s.finish)
	defer t.Stop()
	err = answer(stream, a)
	_ = stream.Close()
	// The client closes its side when it has the answer: a pipe that breaks before
	// could take the answer with it.
	_ = stream.SetReadDeadline(time.Now().Add(taken))
	_, _ = io.Copy(io.Discard, stream)
	s.streams.Add(-1) // this one is done
	s.finish()
	s.streams.Add(1)
	return err
}

// taken bounds the wait for a client that has the answer to say so.
const taken = 200 * time.Millisecond

// beginStop is true for the one who ends the box.
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

// agents are the processes that speak a line protocol to the server. Their end is
// nothing that an agent left running and would miss.
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

// endProcesses signals, waits for grace, kills, and waits for the outcomes.
func (s *Server) endProcesses(grace time.Duration, reason string) {
	detail := "box stopped"
	if reason != "" {
		detail += ": " + reason
	}
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
		case <-time.After(time.Until(until)):
		}
	}
	if grace > 0 {
		s.signalAll(running, syscall.SIGTERM)
		s.signalAll(running, syscall.SIGCONT)
		until := time.Now().Add(grace)
		for time.Now().Before(until) {
			if procs, err := s.cfg.Hands.Processes(); err != nil || len(procs) == 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	until = time.Now().Add(stopWait)
	for time.Now().Before(until) {
		s.signalAll(running, syscall.SIGKILL)
		if procs, err := s.cfg.Hands.Processes(); err != nil || len(procs) == 0 {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	for _, e := range running {
		e.kills.Done()
	}
	for time.Now().Before(until) {
		if _, n := s.led.counts(); n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *Server) signalAll(running []*execution, sig syscall.Signal) {
	if sa, ok := s.cfg.Hands.(signaller); ok {
		sa.SignalAll(int(sig))
		return
	}
	for _, e := range running {
		if e.proc == nil {
			continue // it never started
		}
		if sig == syscall.SIGKILL {
			s.cfg.Hands.KillAll(e.mark)
			continue
		}
		_ = s.cfg.Hands.Signal(e.proc, int(sig))
	}
}

// finish closes the listener and, when last answers had their time, every
// connection.
func (s *Server) finish() {
	s.finishOnce.Do(func() {
		s.mu.Lock()
		if s.listener != nil {
			_ = s.listener.Close()
		}
		s.mu.Unlock()
		until := time.Now().Add(farewell)
		for s.streams.Load() > 0 && time.Now().Before(until) {
			time.Sleep(time.Millisecond)
		}
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

// waitHandlers waits for the goroutines of the server, for a bounded time.
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
