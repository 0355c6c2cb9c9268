// Package child runs a holdfast server as a child process, for commands that need a server to
// kill or to measure: demo, bench and torture; and writes the scripts of the turns that they run.
//
// It imports the client. Invariant: a Server that Start returned accepts requests, and after Kill
// or Terminate its process has been reaped; its boxes are not children of the process and keep
// running.
package child

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// Config describes the server to start.
type Config struct {
	// Binary is the holdfast program, Env its environment.
	Binary string
	Env    []string
	// Data is the data directory; it is created if it is missing.
	Data string
	// Log is the file to which the server's stderr is appended (default server.log in Data).
	Log string
	// Args are more arguments of `serve`. The server listens on a free port of the loopback
	// address, and its boxes have the limits that the machine can enforce.
	Args []string
}

// Server is a running child process and a client of it. Its methods are safe for concurrent use.
type Server struct {
	// Client is a client of the server with the owner's token. It does not reconnect.
	*client.Client
	// URL is the address of the API.
	URL string
	// PID is the process id.
	PID  int
	proc *os.Process
	gone chan struct{}
}

// Start starts a server and waits until it has printed its URL.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, err
	}
	if cfg.Log == "" {
		cfg.Log = filepath.Join(cfg.Data, "server.log")
	}
	log, err := os.OpenFile(cfg.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"serve", "--data", cfg.Data, "--listen", "127.0.0.1:0", "--set", "limits.mode=best-effort"}
	cmd := exec.Command(cfg.Binary, append(args, cfg.Args...)...)
	cmd.Env, cmd.Stderr = cfg.Env, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "server", "the server process could not be started: %w", err)
	}
	s := &Server{PID: cmd.Process.Pid, proc: cmd.Process, gone: make(chan struct{})}
	url := make(chan string, 1)
	go func() {
		defer close(s.gone)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			if i := strings.Index(scan.Text(), "http://"); i >= 0 {
				select {
				case url <- strings.Fields(scan.Text()[i:])[0]:
				default:
				}
			}
		}
		// The log tells how the process ended.
		_ = cmd.Wait()
	}()
	patience := time.NewTimer(30 * time.Second)
	defer patience.Stop()
	select {
	case s.URL = <-url:
		if s.Client, err = s.connect(cfg.Data); err == nil {
			return s, nil
		}
	case <-s.gone:
		err = holdfast.Errorf(holdfast.KindUnavailable, "server", "the server ended during its start; last line of its log: %s", lastLine(cfg.Log))
	case <-patience.C:
		err = holdfast.Errorf(holdfast.KindUnavailable, "server", "the server printed no URL within 30 s; last line of its log: %s", lastLine(cfg.Log))
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.Kill()
	return nil, err
}

func lastLine(log string) string {
	b, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// Gone returns a channel that is closed when the process has ended.
func (s *Server) Gone() <-chan struct{} { return s.gone }

// Kill sends SIGKILL and waits until the process has ended.
func (s *Server) Kill() {
	_ = s.proc.Kill()
	<-s.gone
}

// Terminate sends SIGTERM and waits until the process has ended. If it has not ended after wait,
// Terminate kills it and returns false.
func (s *Server) Terminate(wait time.Duration) bool {
	s.Close()
	_ = s.proc.Signal(syscall.SIGTERM)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-s.gone:
		return true
	case <-timer.C:
		s.Kill()
		return false
	}
}

// Turn sends a message and waits for its turn. It returns an error unless the turn completes.
func (s *Server) Turn(ctx context.Context, id holdfast.SessionID, text string) error {
	st, err := s.Stream(ctx, id, holdfast.SendMessage{Text: text})
	if err != nil {
		return err
	}
	defer st.Close()
	for ev, err := range st.Events(ctx) {
		switch {
		case err != nil:
			return err
		case ev.Type == holdfast.EventTurnCompleted:
			return nil
		case ev.EndsTurn():
			return fmt.Errorf("the turn did not complete, but ended with the event %s: %s", ev.Type, ev.Data)
		}
	}
	return fmt.Errorf("the stream of events ended before the turn did: %w", io.ErrUnexpectedEOF)
}

func (s *Server) connect(data string) (*client.Client, error) {
	token, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: s.URL, Token: strings.TrimSpace(string(token)), ReconnectFor: time.Millisecond})
}
