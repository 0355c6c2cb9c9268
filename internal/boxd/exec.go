package boxd

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// endReason is why boxd ended a call. If there are several reasons, the first one is recorded.
type endReason string

const (
	endTimeout  endReason = "timeout"
	endCanceled endReason = "canceled"
	endStopped  endReason = "stopped"
)

// execution is the process side of an exec call: its process, its pipes or terminal, and its spools.
//
// It ends when its leader (the first process) exits. The bytes that are in the pipes at that moment are
// still part of the output. Later output of background processes is read and dropped, so that they
// neither block nor die of SIGPIPE. With a line protocol, stdout is read only as fast as a server takes
// it, so the end of the execution can wait for the server.
type execution struct {
	req    wire.ExecRequest
	layers []wire.Layer
	watch  bool
	mark   uint64
	// place is the place of the call's session in a shared box; nil in any other box.
	place Place
	// started is closed when the process has started or could not be started.
	started chan struct{}
	// proc and tty are set before started is closed. proc is nil if no process was started, tty is nil without a terminal.
	proc Process
	tty  *os.File
	// dead is closed when the leader has ended, or could not be started.
	dead           chan struct{}
	stdout, stderr *spool
	stdin          *stdin

	mu     sync.Mutex
	subs   map[chan struct{}]struct{}
	reason endReason
	detail string
	// kills counts the kills in progress. If closing is true, beginKill refuses new ones.
	kills   sync.WaitGroup
	closing bool
}

func (s *Server) newExecution(req wire.ExecRequest) *execution {
	e := &execution{
		req: req, mark: s.marks.Add(1), started: make(chan struct{}), dead: make(chan struct{}),
		subs: map[chan struct{}]struct{}{},
	}
	e.stdout = newSpool(&s.spool, req.Lines, e.notify)
	if !req.Merge {
		e.stderr = newSpool(&s.spool, false, e.notify)
	}
	return e
}

// notify tells the attached streams that there is new output.
func (e *execution) notify() {
	e.mu.Lock()
	for ch := range e.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	e.mu.Unlock()
}

func (e *execution) subscribe() chan struct{} {
	ch := make(chan struct{}, 1)
	e.mu.Lock()
	e.subs[ch] = struct{}{}
	e.mu.Unlock()
	return ch
}

func (e *execution) unsubscribe(ch chan struct{}) {
	e.mu.Lock()
	delete(e.subs, ch)
	e.mu.Unlock()
}

// beginKill records why a call is ended, and counts a kill in e.kills. It returns false, without a kill, if the leader
// has ended and the outcome is being made. Afterwards the process no longer waits for a server to take its output.
func (e *execution) beginKill(reason endReason, detail string) bool {
	e.stdout.free()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return false
	}
	if e.reason == "" {
		e.reason, e.detail = reason, detail
	}
	e.kills.Add(1)
	return true
}

// end waits for the kills in progress. It returns why boxd ended the call, or an empty reason if the call ended by itself.
func (e *execution) end() (endReason, string) {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.kills.Wait()
	return e.reason, e.detail
}

func (e *execution) close() {
	e.stdout.close()
	if e.stderr != nil {
		e.stderr.close()
	}
}

// run starts the process of a new call; the caller has entered the gate. A goroutine stores the outcome when the
// process has ended. If no process can be started, run stores the outcome itself.
func (s *Server) run(c *call) {
	e := c.exec
	changes := s.watch(e)
	begun := time.Now()
	before := s.events()
	spec, io, err := s.prepare(e)
	if err == nil {
		e.proc, err = s.cfg.Hands.Start(spec)
		io.closeChild()
	}
	if err != nil {
		io.closeOwn()
		close(e.dead)
		close(e.started)
		res := startFailure(err)
		res.Changes = changes("")
		res.DurationMS = float64(time.Since(begun).Microseconds()) / 1000
		s.led.finish(c, res, nil)
		return
	}
	e.tty = io.tty
	pumps := []*pump{newPump(io.out, e.stdout, io.tty != nil)}
	if io.err != nil {
		pumps = append(pumps, newPump(io.err, e.stderr, false))
	}
	for _, p := range pumps {
		s.wg.Go(p.run)
	}
	if io.in != nil {
		e.stdin = newStdin(io.in, e.req.Lines, io.tty != nil)
		s.wg.Go(e.stdin.run)
	}
	close(e.started)
	var timer *time.Timer
	if e.req.TimeoutMS > 0 {
		d := millis(e.req.TimeoutMS)
		timer = time.AfterFunc(d, func() { s.killNow(e, endTimeout, "timed out after "+d.String()) })
	}
	s.wg.Go(func() {
		st := e.proc.Wait()
		close(e.dead)
		if timer != nil {
			timer.Stop()
		}
		reason, detail := e.end()
		for _, p := range pumps {
			p.leaderGone()
		}
		for _, p := range pumps {
			<-p.drained
		}
		if e.stdin != nil {
			e.stdin.stop()
		}
		res := s.judge(e, st, reason, detail, before)
		res.DurationMS = float64(time.Since(begun).Microseconds()) / 1000
		res.Changes = changes(reason)
		s.led.finish(c, res, nil)
	})
}

// killNow kills every process that the call started, unless the call is ending already.
func (s *Server) killNow(e *execution, reason endReason, detail string) {
	if !e.beginKill(reason, detail) {
		return
	}
	defer e.kills.Done()
	s.cfg.Hands.KillAll(e.mark)
}

// killSoftly kills all processes of the call after grace, or when the leader has ended. Before, unless grace is 0, it
// sends SIGTERM, with a terminal also SIGHUP, to the leader's process group. beginKill must have returned true before.
func (s *Server) killSoftly(e *execution, grace time.Duration) {
	defer e.kills.Done()
	select {
	case <-e.started:
	case <-s.stopped:
		return
	}
	if e.proc == nil {
		return
	}
	if grace > 0 {
		if e.tty != nil {
			_ = s.cfg.Hands.Signal(e.proc, int(syscall.SIGHUP))
		}
		_ = s.cfg.Hands.Signal(e.proc, int(syscall.SIGTERM))
		_ = s.cfg.Hands.Signal(e.proc, int(syscall.SIGCONT))
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-e.dead:
		case <-t.C:
		}
	}
	s.cfg.Hands.KillAll(e.mark)
}

// serveKill kills the processes of an exec call, also those that a finished call has left. It returns when the call has
// its outcome, or when the connection p has ended. It does nothing for file operations and for calls of a former life.
func (s *Server) serveKill(p *peer, asks holdfast.SessionID, req wire.KillRequest) error {
	var c *call
	begun := false
	err := s.led.guard(p, func() {
		if c = s.led.seen(asks, req.Call); c != nil && c.exec != nil {
			begun = c.exec.beginKill(endCanceled, "killed on request")
		}
	})
	if err != nil {
		return err
	}
	if c == nil {
		return holdfast.Errorf(holdfast.KindNotFound, "boxd kill", "no call %s is held by this box", holdfast.Quote(string(req.Call)))
	}
	if c.exec == nil || c.flushed {
		return nil // boxd does not interrupt file operations, and the processes of a former life have ended
	}
	if begun {
		s.killSoftly(c.exec, millis(req.GraceMS))
	}
	select {
	case <-c.done:
	case <-p.done:
		return nil
	}
	s.cfg.Hands.KillAll(c.exec.mark)
	return nil
}

// serveTake records how far the server has taken the stdout of a line protocol. The spool may then overwrite it.
func (s *Server) serveTake(p *peer, asks holdfast.SessionID, req wire.TakeRequest) error {
	var c *call
	err := s.led.guard(p, func() { c = s.led.seen(asks, req.Call) })
	switch {
	case err != nil:
		return err
	case c == nil || c.exec == nil:
		return holdfast.Errorf(holdfast.KindNotFound, "boxd take", "no call %s is held by this box", holdfast.Quote(string(req.Call)))
	case !c.exec.req.Lines:
		return holdfast.Errorf(holdfast.KindInvalid, "boxd take", "output of call %s cannot be taken: the call does not use a line protocol", holdfast.Quote(string(req.Call)))
	}
	c.exec.stdout.release(req.StdoutTo)
	return nil
}

// startFailure returns the result of an exec call whose process could not be started.
func startFailure(err error) wire.ExecResult {
	e := wire.AsError(err)
	res := wire.ExecResult{Class: holdfast.ExitError, Code: -1, Message: e.Msg}
	if e.Hint != "" {
		res.Message += " (" + e.Hint + ")"
	}
	switch holdfast.KindOf(err) {
	case holdfast.KindBusy:
		res.Class = holdfast.ExitPids
	case holdfast.KindNotFound:
		res.Code = 127
	case holdfast.KindDenied:
		res.Code = 126
	}
	return res
}

// eventCounter is an optional interface of Hands. Events reads only the two counters that decide the exit
// class of a call, which takes less time than Stats. -1 means that a counter cannot be read.
type eventCounter interface {
	Events() (oomKills, pidsRefused int64)
}

type events struct{ oom, pids int64 }

func (s *Server) events() events {
	if ec, ok := s.cfg.Hands.(eventCounter); ok {
		oom, pids := ec.Events()
		return events{oom, pids}
	}
	return events{s.cfg.Hands.Stats().OOMKills, -1}
}

// judge returns the result of a call whose leader has ended. The box's counters decide whether the box
// ran out of memory or processes, not the exit code (such as 137).
func (s *Server) judge(e *execution, st ExitStatus, reason endReason, detail string, before events) wire.ExecResult {
	res := wire.ExecResult{Code: st.Code, Class: holdfast.ExitOK}
	if st.Signal != 0 {
		res.Code, res.Class, res.Signal = -1, holdfast.ExitSignal, signalName(st.Signal)
	} else if st.Code != 0 {
		res.Class = holdfast.ExitExit
	}
	res.StdoutBytes, res.StdoutDropped = e.stdout.counts()
	if e.stderr != nil {
		res.StderrBytes, res.StderrDropped = e.stderr.counts()
	}
	switch {
	case reason == endTimeout && st.Signal != 0:
		res.Class, res.Message = holdfast.ExitTimeout, detail
	case reason == endCanceled || reason == endStopped:
		res.Class, res.Message = holdfast.ExitCanceled, detail
	case res.Class != holdfast.ExitOK:
		after := s.events()
		switch {
		case before.oom >= 0 && after.oom > before.oom:
			res.Class, res.Message = holdfast.ExitOOM, "the box ran out of memory and the kernel killed a process"
		case before.pids >= 0 && after.pids > before.pids && st.Signal == 0:
			res.Class, res.Message = holdfast.ExitPids, "the box reached its limit of processes and a fork failed"
		}
	}
	for _, p := range s.cfg.Hands.Left(e.mark) {
		res.Left = append(res.Left, strings.TrimPrefix(fmt.Sprintf("%d %s", p.PID, p.Name), "0 "))
	}
	return res
}

func signalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}
