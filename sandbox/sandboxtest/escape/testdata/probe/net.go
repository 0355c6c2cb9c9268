package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func netVerbs() map[string]verb {
	return map[string]verb{
		"dial":    func(a []string) (string, error) { return dial(a, "hello\n") },
		"hello":   func(a []string) (string, error) { return dial(a, "H\x00\x00\x00\x02{}") }, // boxd's first frame
		"dns":     dns,
		"listen":  listen,
		"answer":  answer,
		"socket":  socket,
		"address": func(a []string) (string, error) { return "", address(a[0]) },
		"sockets": sockets,
		"devices": devices,
		"netlink": netlink,
	}
}

const wait = 2 * time.Second

// dial connects, says something and reads the answer.
func dial(a []string, say string) (string, error) {
	c, err := net.DialTimeout(a[0], a[1], wait)
	if err != nil {
		return "", short(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	if _, err := c.Write([]byte(say)); err != nil && !errors.Is(err, syscall.EPIPE) {
		return "", short(err)
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return string(buf[:n]), short(err)
}

func short(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	if err != nil && os.IsTimeout(err) {
		return syscall.ETIMEDOUT
	}
	return err
}

// dns asks a name server for a name, without any library of the system.
func dns(a []string) (string, error) {
	q := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, l := range strings.Split(a[1], ".") {
		q = append(append(q, byte(len(l))), l...)
	}
	q = append(q, 0, 0, 16, 0, 1)
	c, err := net.DialTimeout("udp", a[0], wait)
	if err != nil {
		return "", short(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	if _, err := c.Write(q); err != nil {
		return "", short(err)
	}
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	return string(buf[:n]), short(err)
}

func socket(a []string) (string, error) {
	return "", closingFD(unix.Socket(atoi(a[0]), atoi(a[1]), atoi(a[2])))
}

// address gives the loopback device one more address.
func address(ip string) error {
	to := net.ParseIP(ip).To4()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	var req struct {
		name [16]byte
		addr unix.RawSockaddrInet4
		_    [8]byte
	}
	copy(req.name[:], "lo:1")
	req.addr.Family = unix.AF_INET
	copy(req.addr.Addr[:], to)
	return sys(unix.SYS_IOCTL, uintptr(s), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&req)))
}

// serve is for controls: in a network namespace of its own the address exists
// and somebody answers there.
func serve(addr string) {
	host, _, err := net.SplitHostPort(addr)
	if err == nil {
		err = up()
	}
	if ip := net.ParseIP(host); err == nil && ip.To4() != nil && !ip.IsLoopback() {
		err = address(host)
	}
	if err != nil {
		fmt.Println("serve:", err)
		os.Exit(2)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println("serve:", err)
		os.Exit(2)
	}
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		fmt.Println("serve:", err)
		os.Exit(2)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("escape-canary-network"))
			c.Close()
		}
	}()
	go func() {
		buf := make([]byte, 512)
		for {
			_, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo([]byte("escape-canary-network"), from)
		}
	}()
}

// up switches the loopback device on.
func up() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
}

// devices lists network devices other than loopback.
func devices([]string) (string, error) {
	b, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return "", err
	}
	var out []string
	for l := range strings.Lines(string(b)) {
		if dev, _, ok := strings.Cut(strings.TrimSpace(l), ":"); ok && dev != "lo" {
			out = append(out, dev)
		}
	}
	if len(out) == 0 {
		return "", errors.New("none but lo")
	}
	return strings.Join(out, ","), nil
}

// netlink asks the kernel over a route socket to switch a device off.
func netlink([]string) (string, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return "", err
	}
	defer unix.Close(s)
	// RTM_NEWLINK for device 1, flags unchanged, asking for an answer.
	msg := make([]byte, 32)
	*(*unix.NlMsghdr)(unsafe.Pointer(&msg[0])) = unix.NlMsghdr{Len: 32, Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK, Seq: 1}
	*(*unix.IfInfomsg)(unsafe.Pointer(&msg[16])) = unix.IfInfomsg{Family: unix.AF_UNSPEC, Index: 1}
	if err := unix.Sendto(s, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, buf, 0)
	if err != nil {
		return "", err
	}
	if n < 20 {
		return "", errors.New("no answer")
	}
	if code := *(*int32)(unsafe.Pointer(&buf[16])); code != 0 {
		return "", syscall.Errno(-code)
	}
	return "", nil
}

// sockets looks for Unix sockets it can connect to: below directories, and abstract
// ones whose name begins so.
func sockets(a []string) (string, error) {
	var found []string
	for _, at := range a {
		if !strings.HasPrefix(at, "@") {
			walkSockets(at, &found)
			continue
		}
		b, _ := os.ReadFile("/proc/net/unix")
		for l := range strings.Lines(string(b)) {
			if f := strings.Fields(l); len(f) == 8 && strings.HasPrefix(f[7], at) {
				try(f[7], &found)
			}
		}
	}
	if len(found) == 0 {
		return "", errors.New("none")
	}
	return strings.Join(found, ","), nil
}

func walkSockets(dir string, found *[]string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := dir + "/" + e.Name()
		switch {
		case path == "//proc" || path == "//usr":
		case e.IsDir():
			walkSockets(path, found)
		case e.Type()&os.ModeSocket != 0:
			try(path, found)
		}
	}
}

func try(name string, found *[]string) {
	if c, err := net.Dial("unix", name); err == nil {
		c.Close()
		*found = append(*found, name)
	}
}

// answer serves a Unix socket for ever, as another session's process.
func answer(a []string) (string, error) {
	l, err := net.Listen("unix", a[0])
	if err != nil {
		return "", err
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		_, _ = c.Write([]byte("escape-canary-network"))
		c.Close()
	}
}

// listen takes an address of this machine and reaches itself there.
func listen(a []string) (string, error) {
	l, err := net.Listen("tcp", a[0])
	if err != nil {
		return "", err
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err == nil {
		err = c.Close()
	}
	return "", err
}
