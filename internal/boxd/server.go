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

// FileOps are the file operations of a box. boxd calls them in Hands.Do, or in a shared box in Place.Do.
// Errors carry a Kind. *files.FS implements it. Config.Files must be safe for concurrent use.
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

// TreeOps copy whole directory trees. They pass their work on the file system in pieces to do, which is Hands.Do or in
// a shared box Place.Do. They read and write the stream outside of do. Errors carry a Kind. *files.FS implements it.
type TreeOps interface {
	Pack(req wire.PackRequest, w io.Writer, do func(func() error) error) (holdfast.Copied, error)
	// Unpack first removes files that a former life of boxd has left half unpacked. life names the present life.
	Unpack(req wire.UnpackRequest, r io.Reader, life string, do func(func() error) error) (holdfast.Copied, error)
}

// Config holds the settings and the dependencies of a Server.
type Config struct {
	// Config is the configuration from the driver. SpoolBytes is at least 4 KiB; 0 means 8 MiB. MaxHeld 0 means 4096.
	wire.Config
	Hands Hands
	Files FileOps // if Files also implements TreeOps, whole directory trees can be copied
	// Scoped returns file operations within the scope of one request. If nil, requests with a scope are refused.
	Scoped func(wire.Scope) FileOps
	// Watch lists the files of the workspace. The function that it returns lists them again and returns
	// the changes. Both run in Hands.Do. If Watch is nil, boxd reports that it cannot see changes.
	Watch func() func() wire.Changes
	// InForce and Missing list the protections that the box has and lacks. They are sent in the Welcome.
	InForce, Missing []string
}

// Server is the boxd of one box. New makes it, Serve runs it.
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

	// helloMu is held while a hello message is checked and its token saved.
	helloMu sync.Mutex

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	orphan   *time.Timer
	stopping bool
	stopped  chan struct{}
	// adopted is how many of the calls that a former life of the box has saved are not released yet.
	adopted    int
	finishOnce sync.Once
	load       load
	wg         sync.WaitGroup
}

// load counts operations: streams is the number of those in progress, served the number of all since the start of boxd.
type load struct{ streams, served atomic.Int64 }

// New makes a Server with the token and the outcomes in its state directory. It returns invalid if a file
// there is not valid or cannot be read, or if the configuration is incomplete.
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
	_, _ = rand.Read(boot[:]) // rand.Read never fails
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

// Serve accepts connections until the box stops: through OpStop, Stop, the end of ctx, or because no server was
// connected for OrphanAfter. It returns nil after a stop, which closes l, and otherwise the error of l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = l.Close()
		return nil
	}
	s.listener = l
	// Start this goroutine under the lock: a stop waits for the goroutines of wg, and none may be added then.
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
				// Usually no descriptor is free: try again later. New connections wait in the kernel meanwhile.
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

// ServeConn serves a connection in the background, from its hello message to its end, and then closes it.
// A driver without a listener calls it for each connection.
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

// armOrphan starts the timer after which the box stops because no server is connected. It does nothing if
// a server is connected, or if OrphanAfter is not set.
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
