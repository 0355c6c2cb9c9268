package boxd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/trim"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Defaults of a Config.
const (
	DefaultSpoolBytes = 8 << 20
	DefaultMaxHeld    = 4096
	// helloWait is how long boxd waits for the hello of a new connection.
	helloWait = 30 * time.Second
	// stopGrace is the grace period of a stop that no server requested.
	stopGrace = 5 * time.Second
)

// FileOps are the file operations of the box. boxd calls them inside Hands.Do. Errors carry a
// Kind. Implementations, such as *files.FS, must be safe for concurrent use.
type FileOps interface {
	Read(req wire.ReadRequest, w io.Writer) (wire.ReadAnswer, error)
	Write(req wire.WriteRequest, data io.Reader) (wire.WriteAnswer, error)
	Edit(req wire.EditRequest) (wire.EditAnswer, error)
	Stat(req wire.PathRequest) (wire.FileInfo, error)
	List(req wire.ListRequest) (wire.ListAnswer, error)
	Glob(req wire.GlobRequest) (wire.GlobAnswer, error)
	Grep(req wire.GrepRequest) (wire.GrepAnswer, error)
	Remove(req wire.RemoveRequest) error
	Mkdir(req wire.MkdirRequest) error
	Rename(req wire.RenameRequest) error
}

// TreeOps copy whole directory trees. They work in pieces, each passed to do (Hands.Do); the
// stream is read and written outside of do. Errors carry a Kind. Implementations, such as
// *files.FS, must be safe for concurrent use.
type TreeOps interface {
	Pack(req wire.PackRequest, w io.Writer, do func(func() error) error) (holdfast.Copied, error)
	// Unpack first removes what an earlier run of boxd left half unpacked; life is the name of the current run.
	Unpack(req wire.UnpackRequest, r io.Reader, life string, do func(func() error) error) (holdfast.Copied, error)
}

// Config holds the settings and the dependencies of a Server.
type Config struct {
	// Config is the configuration from the driver; its State directory must exist. SpoolBytes 0 means 8 MiB,
	// MaxHeld 0 means 4096.
	wire.Config
	Hands Hands
	Files FileOps // if it also implements TreeOps, whole directory trees can be copied
	// Scoped returns the file operations limited to a request's scope; if nil, requests with a
	// scope are refused.
	Scoped func(wire.Scope) FileOps
	// Watch lists the workspace. The function that it returns lists it again and returns the changes;
	// both run inside Hands.Do. If Watch is nil, results of calls do not tell which files changed.
	Watch func() func() wire.Changes
	// InForce and Missing are sent in the Welcome: the protections of the box that work and those that do not.
	InForce, Missing []string
}

// Server is the boxd of one box. Make one with New, run it with Serve.
type Server struct {
	cfg   Config
	boot  string
	state *stateDir
	led   *ledger
	gate  gate
	spool spoolPool
	null  *os.File
	marks atomic.Uint64
	links listeners

	watches watches
	members members

	// helloMu serialises hellos: a token is saved before the next hello is checked.
	helloMu sync.Mutex

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	orphan   *time.Timer
	stopping bool
	stopped  chan struct{}
	// adopted is how many unreleased calls are left of those that an earlier boxd of this box saved.
	adopted    int
	finishOnce sync.Once
	load       load
	wg         sync.WaitGroup
}

// load counts operations: streams are those in progress, served all that were ever started.
type load struct{ streams, served atomic.Int64 }

// New makes a Server on its state directory. It fails with KindInvalid if it does not understand
// a file there, because guessing would be dangerous.
func New(cfg Config) (*Server, error) {
	if cfg.SpoolBytes <= 0 {
		cfg.SpoolBytes = DefaultSpoolBytes
	}
	cfg.SpoolBytes = max(cfg.SpoolBytes, 4<<10)
	if cfg.MaxHeld <= 0 {
		cfg.MaxHeld = DefaultMaxHeld
	}
	if cfg.Hands == nil || cfg.Files == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd", "the configuration of boxd lacks Hands or Files")
	}
	state, err := openState(cfg.State)
	if err != nil {
		return nil, err
	}
	token, err := state.loadToken()
	if err != nil {
		return nil, err
	}
	var boot [16]byte
	_, _ = rand.Read(boot[:]) // it never fails
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxd", "cannot open the null device: %w", err)
	}
	s := &Server{
		cfg: cfg, boot: hex.EncodeToString(boot[:]), state: state, null: null,
		conns: map[net.Conn]struct{}{}, stopped: make(chan struct{}),
	}
	s.led = newLedger(cfg.MaxHeld, s.forgotten)
	s.led.token = token
	s.gate.init(cfg.Hands)
	s.spool.limit, s.spool.file = cfg.SpoolBytes, state.unlinked
	s.links.init(s)
	s.members = members{s: s, shared: cfg.Jail != nil && cfg.Jail.Shared != nil, of: map[holdfast.SessionID]*member{}}
	if err := s.loadOutcomes(); err != nil {
		_ = null.Close()
		return nil, err
	}
	return s, nil
}

// Boot returns the random name of this life of the box.
func (s *Server) Boot() string { return s.boot }

// Serve accepts connections until the box stops: by OpStop, Stop, the orphan timer or the end of
// ctx. It closes the listener. It returns nil after a stop, and otherwise the listener's error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = l.Close()
		return nil
	}
	s.listener = l
	// Start this goroutine under the lock: a stop waits for the goroutines of wg, and none may be added after that.
	s.wg.Go(func() { s.watchIdle(ctx, trim.Memory) })
	s.mu.Unlock()
	s.armOrphan()
	end := context.AfterFunc(ctx, func() { s.Stop(stopGrace, "boxd was ended") })
	defer end()
	for {
		conn, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			stopping := s.stopping
			s.mu.Unlock()
			if stopping {
				<-s.stopped
				s.waitHandlers()
				return nil
			}
			if temporary(err) {
				// No descriptor is free: wait until some are closed; new connections wait in the backlog.
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return holdfast.Errorf(holdfast.KindUnavailable, "boxd", "boxd cannot accept a connection: %w", err)
		}
		s.ServeConn(conn)
	}
}

func temporary(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout() || isFull(err)
}

// ServeConn serves a connection in the background, from its hello on. It closes conn in the end.
// Drivers without a listener call it directly.
func (s *Server) ServeConn(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		_ = conn.Close()
		return
	}
	s.conns[conn] = struct{}{}
	s.wg.Go(func() {
		s.serveConn(conn)
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		s.armOrphan()
	})
}

// armOrphan starts the timer that stops the box, unless a server is connected.
func (s *Server) armOrphan() {
	attached := s.led.attached()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.OrphanAfter <= 0 || s.stopping || attached {
		return
	}
	if s.orphan == nil {
		s.orphan = time.AfterFunc(s.cfg.OrphanAfter, s.orphaned)
		return
	}
	s.orphan.Reset(s.cfg.OrphanAfter)
}

func (s *Server) orphaned() {
	if !s.led.attached() {
		s.Stop(stopGrace, "no server connected for "+s.cfg.OrphanAfter.String())
	}
}
