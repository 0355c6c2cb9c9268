package wire

import (
	"encoding/json"
	"io"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// ControlFD is where a boxd has its end of the control socket. It is all that boxd
// inherits: what makes it a box comes through this socket, so that the driver can
// prepare it while the kernel makes the process.
const ControlFD = 3

const (
	// maxConfig bounds a message, that of the files' contents with it.
	maxConfig = 1 << 20
	// maxRights is how many descriptors the kernel takes with one write.
	maxRights = 253
)

// AppendConfig appends the message that hands over a Config: its JSON, then the
// contents of the files that it makes, which JSON would have to quote.
func AppendConfig(buf []byte, c Config) ([]byte, error) {
	var contents []byte
	if c.Jail != nil {
		j := *c.Jail
		j.Mounts = append([]Mount(nil), j.Mounts...)
		for i := range j.Mounts {
			m := &j.Mounts[i]
			m.Length = len(m.Content)
			contents = append(contents, m.Content...)
		}
		c.Jail = &j
	}
	buf, err := AppendJSON(buf, FrameRequest, c)
	if err != nil {
		return nil, err
	}
	return AppendLong(buf, FrameRequest, contents)
}

// SendFiles writes a message with open files, the driver's way. write is one
// sendmsg: it takes the rights along and says how much of the bytes it took.
func SendFiles(message []byte, files []int, write func(b, rights []byte) (int, error)) error {
	for len(message) > 0 {
		var rights []byte
		n := len(message)
		if len(files) > 0 {
			rights = syscall.UnixRights(files[:min(len(files), maxRights)]...)
			files = files[min(len(files), maxRights):]
		}
		if len(files) > 0 {
			n = 1 // each load of files needs a byte to go with
		}
		n, err := write(message[:n], rights)
		if err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// Control is boxd's end of the control socket. It blocks its thread: boxd has
// nothing else to do. Not safe for concurrent use.
type Control struct {
	fd    int
	in    *Reader
	files []int
}

// NewControl is the control socket behind a descriptor.
func NewControl(fd int) *Control {
	c := &Control{fd: fd}
	c.in = NewReader(c)
	return c
}

// Config reads what the driver hands over; io.EOF when it went away before.
func (c *Control) Config() (*Config, error) {
	cfg := new(Config)
	if err := c.Receive(cfg); err != nil {
		return nil, err
	}
	_, contents, err := c.in.NextLong()
	if err != nil {
		return nil, broken(err)
	}
	return cfg, cfg.complete(string(contents), c.files)
}

// complete puts contents and descriptors in their places.
func (c *Config) complete(contents string, files []int) error {
	bad := false
	file := func(at *int) {
		if *at < 0 || *at > len(files) {
			bad = true
		} else if *at > 0 {
			*at = files[*at-1]
		}
	}
	file(&c.Listener)
	file(&c.StateFD)
	if j := c.Jail; j != nil {
		file(&j.WorkCgroup)
		file(&j.BoxdProcs)
		for _, list := range [][]int{j.WorkTasks, j.BoxdTasks} {
			for i := range list {
				file(&list[i])
			}
		}
		for name, at := range j.Counters {
			file(&at)
			j.Counters[name] = at
		}
		for i := range j.Mounts {
			m := &j.Mounts[i]
			file(&m.TreeFD)
			if m.Length < 0 || m.Length > len(contents) {
				bad = true
				continue
			}
			m.Content, contents = contents[:m.Length], contents[m.Length:]
		}
	}
	if bad || contents != "" {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "what came with it is not what it names")
	}
	return nil
}

// Receive reads one message into v; io.EOF when the driver went away before.
func (c *Control) Receive(v any) error {
	_, b, err := c.in.NextLong()
	if err != nil {
		return broken(err)
	}
	if len(b) > maxConfig {
		return holdfast.Errorf(holdfast.KindTooLarge, "config", "over %d bytes", maxConfig)
	}
	text := string(b)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "%s: %s", holdfast.Quote(text), err.Error())
	}
	return nil
}

func broken(err error) error {
	if err == io.EOF {
		return err
	}
	return holdfast.Errorf(holdfast.KindInvalid, "config", "cannot read descriptor %d: %w", ControlFD, err).
		WithHint("boxd is started by holdfast, not by hand")
}

// Tell sends a status.
func (c *Control) Tell(st JailStatus) error { return WriteJSON(c, FrameAnswer, st) }

// Close is the end of it.
func (c *Control) Close() { _ = syscall.Close(c.fd) }

// Read is for the Reader. Descriptors that come along are kept.
func (c *Control) Read(b []byte) (int, error) {
	rights := make([]byte, syscall.CmsgSpace(4*maxRights))
	for {
		n, m, flags, _, err := syscall.Recvmsg(c.fd, b, rights, syscall.MSG_CMSG_CLOEXEC)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		case flags&syscall.MSG_CTRUNC != 0:
			return 0, syscall.EMSGSIZE // no room for all descriptors
		}
		if err := c.keep(rights[:m]); err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

func (c *Control) keep(rights []byte) error {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return err
	}
	for _, m := range messages {
		files, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		c.files = append(c.files, files...)
	}
	return nil
}

// Write writes all of b.
func (c *Control) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		m, err := syscall.Write(c.fd, b[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += m
	}
	return len(b), nil
}
