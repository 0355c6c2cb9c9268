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
	// helloWait is how long a new connection may take to say hello.
	helloWait = 30 * time.Second
	// stopGrace is the grace of a stop that nobody asked for.
	stopGrace = 5 * time.Second
)

// FileOps are the file operations, run inside Hands.Do. Errors carry a Kind.
// *files.FS implements it. Safe for concurrent use.
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

// TreeOps copy whole trees. They do their work in pieces, each run by do, which is
// Hands.Do; the stream is read and written outside of it. Errors carry a Kind. *files.FS
// implements it. Safe for concurrent use.
type TreeOps interface {
	Pack(req wire.PackRequest, w io.Writer, do func(func() error) error) (holdfast.Copied, error)
	// Unpack removes what an earlier life of the box left half unpacked; life names this one.
	Unpack(req wire.UnpackRequest, r io.Reader, life string, do func(func() error) error) (holdfast.Copied, error)
}

// Config is what a Server needs.
type Config struct {
	// Config is the driver's; its State must exist. SpoolBytes 0 is 8 MiB, MaxHeld 0 is 4096.
	wire.Config
	Hands Hands
	Files FileOps
	// Trees copies trees; nil refuses it.
	Trees TreeOps
	// Scoped are the file operations of one request that a scope holds; nil refuses
	// such requests.
	Scoped func(wire.Scope) FileOps
	// Watch lists the workspace, and what it returns lists it again and compares; both
	// run inside Hands.Do. nil: no call says which files it changed.
	Watch func() func() wire.Changes
	// InForce and Missing go into the Welcome.
	InForce, Missing []string
	// Now defaults to time.Now; Rand to crypto/rand.
	Now  func() time.Time
	Rand io.Reader
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

	// helloMu serialises hellos: a token is durable before the next is judged.
	helloMu sync.Mutex

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	orphan   *time.Timer
	stopping bool
	stopped  chan struct{}
	// adopted counts the unreleased calls of a former life.
	adopted    int
	finishOnce sync.Once
	// streams counts the operations being served.
	streams atomic.Int64
	// served counts all that were ever served.
	served atomic.Int64
	wg     sync.WaitGroup
}

// New makes a Server on its state directory. A state file that cannot be
// understood is KindInvalid: the box does not start on guesses.
func New(cfg Config) (*Server, error) {
	if cfg.SpoolBytes <= 0 {
		cfg.SpoolBytes = DefaultSpoolBytes
	}
	cfg.SpoolBytes = max(cfg.SpoolBytes, 4<<10)
	if cfg.MaxHeld <= 0 {
		cfg.MaxHeld = DefaultMaxHeld
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Hands == nil || cfg.Files == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd", "hands and files are required")
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
	if _, err := io.ReadFull(cfg.Rand, boot[:]); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "boxd", "no randomness: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxd", "no null device: %w", err)
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
	if err := s.loadOutcomes(); err != nil {
		_ = null.Close()
		return nil, err
	}
	return s, nil
}

// Boot is the random name of this life of the box.
func (s *Server) Boot() string { return s.boot }

// Serve accepts connections until the box is stopped, by OpStop, Stop, the
// orphan timer or the end of ctx. It closes the listener. It returns nil after
// a stop and the listener's error otherwise.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = l.Close()
		return nil
	}
	s.listener = l
	// Under the lock: a stop waits for the group, and nothing may join it then.
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
				// Out of descriptors: the ones in use end, and the backlog keeps.
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return holdfast.Errorf(holdfast.KindUnavailable, "boxd", "cannot accept: %w", err)
		}
		s.ServeConn(conn)
	}
}

func temporary(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout() || isFull(err)
}

// ServeConn serves one connection, before its hello, in the background. It owns
// conn. Drivers without a listener call it directly.
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

// armOrphan starts the orphan timer when nobody is connected.
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
		s.Stop(stopGrace, "no server came for "+s.cfg.OrphanAfter.String())
	}
}
