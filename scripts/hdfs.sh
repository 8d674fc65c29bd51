#!/usr/bin/env bash
# A stock HDFS on this machine's loopback, from Maven Central: nothing of it is changed, nothing is installed.
#
#   scripts/hdfs.sh fetch                      fetches the jars (once) and prints the folder with them
#   scripts/hdfs.sh prepare DIR PORT [K=V...]  makes DIR: configuration, a formatted NameNode with its RPC on PORT
#   scripts/hdfs.sh pair DIR PORT [K=V...]     the same with two NameNodes (high availability), the other's RPC on PORT+2
#   scripts/hdfs.sh namenode DIR [1|2 [K=V...]] runs the NameNode, or one of the two, in the foreground
#   scripts/hdfs.sh datanode DIR I [K=V...]    runs DataNode I (ports PORT+10+3*I and two more) in the foreground
#   scripts/hdfs.sh client DIR CLASS ARGS...   a stock client: fs, ec, admin, fsck, haadmin; or a class of Hadoop
#   scripts/hdfs.sh up DIR PORT NODES [K=V...] all of it; ends, and leaves no process, with Ctrl-C
#
# Jars in DIR/jars are on the class path of all of them. Of a pair both begin as standbys: "client DIR haadmin -transitionToActive nn1". They share their edits in a folder. DataNodes
# that are listed in DIR/exclude (ip:port) are decommissioned by "client DIR admin -refreshNodes".
#
# HDFS_VERSION chooses the release (3.4.3; 3.5.0 is fetched when it is asked for), HDFS_LIB the folder for jars
# (default ~/.cache/kintsu/hdfs), HDFS_MORE further artifacts of Hadoop to fetch into another one, HDFS_HOST the address to listen on (127.0.0.1; another one inside a namespace), HDFS_JAVA further
# options of Java (by default little is compiled, because daemons of tests live for minutes).
set -euo pipefail

version=${HDFS_VERSION:-3.4.3}
host=${HDFS_HOST:-127.0.0.1}
lib=${HDFS_LIB:-${XDG_CACHE_HOME:-$HOME/.cache}/kintsu/hdfs}/$version
java_flags=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k -Xshare:auto -Djava.net.preferIPv4Stack=true)
read -ra more_flags <<<"${HDFS_JAVA:-}"
java_flags+=("${more_flags[@]}")

fail() { echo "hdfs.sh: $*" >&2; exit 1; }

fetch() {
    if [ ! -e "$lib/complete" ]; then
        command -v mvn >/dev/null || fail "no Maven here (mvn), which fetches HDFS $version"
        command -v java >/dev/null || fail "no Java here (java), which runs HDFS"
        mkdir -p "$(dirname "$lib")"
        exec 8>"$lib.lock"
        flock 8
        if [ ! -e "$lib/complete" ]; then
            local work
            work=$(mktemp -d)
            {
                echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
                echo '<groupId>kintsu</groupId><artifactId>hdfs-beside</artifactId><version>1</version>'
                echo '<packaging>pom</packaging><dependencies>'
                for artifact in hadoop-common hadoop-hdfs hadoop-hdfs-client ${HDFS_MORE:-}; do
                    echo "<dependency><groupId>org.apache.hadoop</groupId><artifactId>$artifact</artifactId>"
                    echo "<version>$version</version></dependency>"
                done
                echo '</dependencies></project>'
            } >"$work/pom.xml"
            mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$lib" >"$work/log" 2>&1 ||
                fail "Maven could not fetch HDFS $version: $(tail -n 3 "$work/log" | tr '\n' ' ')"
            rm -rf "$work"
            touch "$lib/complete"
        fi
        exec 8>&-
    fi
    echo "$lib"
}

# One property of a configuration file.
property() { printf '  <property><name>%s</name><value>%s</value></property>\n' "$1" "$2"; }

prepare() { make "$1" "$2" single "${@:3}"; }
pair() { make "$1" "$2" pair "${@:3}"; }

make() {
    local dir=$1 port=$2 kind=$3
    shift 3
    mkdir -p "$dir/conf/webapps/hdfs" "$dir/conf/webapps/datanode" "$dir/log" "$dir/jars"
    dir=$(cd "$dir" && pwd)
    echo "$port" >"$dir/port"
    echo "$kind" >"$dir/kind"
    touch "$dir/exclude"
    {
        echo '<configuration>'
        if [ "$kind" = pair ]; then
            property fs.defaultFS hdfs://pair
        else
            property fs.defaultFS "hdfs://$host:$port"
        fi
        property hadoop.security.authorization false
        property hadoop.tmp.dir "$dir/tmp"
        property ipc.client.connect.max.retries 3
        echo '</configuration>'
    } >"$dir/conf/core-site.xml"
    {
        echo '<configuration>'
        if [ "$kind" = pair ]; then
            property dfs.nameservices pair
            property dfs.ha.namenodes.pair nn1,nn2
            local i
            for i in 1 2; do
                property "dfs.namenode.rpc-address.pair.nn$i" "$host:$((port + 2 * i - 2))"
                property "dfs.namenode.http-address.pair.nn$i" "$host:$((port + 2 * i - 1))"
            done
            property dfs.namenode.shared.edits.dir "file://$dir/edits"
            property dfs.client.failover.proxy.provider.pair \
                org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider
            property dfs.ha.fencing.methods 'shell(/bin/true)'
            property dfs.ha.tail-edits.period 1s
        else
            property dfs.namenode.rpc-address "$host:$port"
            property dfs.namenode.http-address "$host:$((port + 1))"
            property dfs.namenode.name.dir "file://$dir/name"
        fi
        property dfs.hosts.exclude "$dir/exclude"
        property dfs.namenode.datanode.registration.ip-hostname-check false
        property dfs.namenode.fs-limits.min-block-size 4096
        property dfs.namenode.safemode.extension 0
        # Full placement rules want many racks; here there is one.
        property dfs.namenode.ec.system.default.policy RS-3-2-1024k
        # No DataNode is passed over because it is busier than others: a group needs nearly all of them.
        property dfs.namenode.redundancy.considerLoad false
        property dfs.datanode.max.transfer.threads 256
        property dfs.datanode.directoryscan.interval -1
        property dfs.client.use.datanode.hostname false
        local setting
        for setting in "$@"; do property "${setting%%=*}" "${setting#*=}"; done
        echo '</configuration>'
    } >"$dir/conf/hdfs-site.xml"
    printf 'log4j.rootLogger=WARN,stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\n' \
        >"$dir/conf/log4j.properties"
    printf 'log4j.appender.stderr.target=System.err\nlog4j.appender.stderr.layout=org.apache.log4j.PatternLayout\n' \
        >>"$dir/conf/log4j.properties"
    printf 'log4j.appender.stderr.layout.ConversionPattern=%%d{ISO8601} %%p %%c{1}: %%m%%n\n' \
        >>"$dir/conf/log4j.properties"
    # There is no native library among the jars, and nothing here needs it.
    echo 'log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR' >>"$dir/conf/log4j.properties"
    # Counters that are asked for over HTTP are at most a second old.
    echo '*.period=1' >"$dir/conf/hadoop-metrics2.properties"
    format "$dir"
}

# Which of the NameNodes a Java process is, as options.
which_one() {
    local dir i=${2:-1}
    dir=$(cd "$1" && pwd)
    [ "$(cat "$dir/kind")" = single ] ||
        printf '%s\n' -D "dfs.ha.namenode.id=nn$i" -D "dfs.namenode.name.dir=file://$dir/name$i"
}

format() {
    local dir=$1 options
    [ -e "$dir/name/current/VERSION" ] || [ -e "$dir/name2/current/VERSION" ] || {
        mapfile -t options < <(which_one "$dir")
        java "${java_flags[@]}" -Xmx256m -cp "$dir/conf:$dir/jars/*:$(fetch)/*" \
            org.apache.hadoop.hdfs.server.namenode.NameNode "${options[@]}" -format -force -nonInteractive \
            >"$dir/log/format" 2>&1 || fail "the NameNode could not be formatted: see $dir/log/format"
        # The other one begins with the same empty namespace.
        [ ! -e "$dir/name1" ] || cp -r "$dir/name1" "$dir/name2"
    }
}

# Replaces this shell by a Java process that ends with its parent.
become() {
    local die=()
    command -v setpriv >/dev/null && die=(setpriv --pdeathsig KILL)
    exec "${die[@]}" java "${java_flags[@]}" "$@"
}

namenode() {
    local dir=$1 i=${2:-1} jars options pair
    shift $(($# < 2 ? $# : 2))
    jars=$(fetch)
    mapfile -t options < <(which_one "$dir" "$i")
    for pair in "$@"; do options+=(-D "$pair"); done
    become -Xmx256m -cp "$dir/conf:$dir/jars/*:$jars/*" org.apache.hadoop.hdfs.server.namenode.NameNode "${options[@]}"
}

datanode() {
    local dir i=$2 jars port more=()
    dir=$(cd "$1" && pwd)
    shift 2
    jars=$(fetch)
    port=$(($(cat "$dir/port") + 10 + 3 * i))
    local pair
    for pair in "$@"; do more+=(-D "$pair"); done
    mkdir -p "$dir/data$i"
    become -Xmx96m -XX:MaxMetaspaceSize=96m -cp "$dir/conf:$dir/jars/*:$jars/*" org.apache.hadoop.hdfs.server.datanode.DataNode \
        -D "dfs.datanode.address=$host:$port" -D "dfs.datanode.http.address=$host:$((port + 1))" \
        -D "dfs.datanode.ipc.address=$host:$((port + 2))" -D "dfs.datanode.hostname=$host" \
        -D "dfs.datanode.data.dir=file://$dir/data$i" "${more[@]}"
}

client() {
    local dir=$1 class=$2 jars
    shift 2
    jars=$(fetch)
    case $class in
    fs) class=org.apache.hadoop.fs.FsShell ;;
    ec) class=org.apache.hadoop.hdfs.tools.ECAdmin ;;
    admin) class=org.apache.hadoop.hdfs.tools.DFSAdmin ;;
    fsck) class=org.apache.hadoop.hdfs.tools.DFSck ;;
    haadmin) class=org.apache.hadoop.hdfs.tools.DFSHAAdmin ;;
    esac
    become -Xmx256m -cp "$dir/conf:$dir/jars/*:$jars/*" "$class" "$@"
}

up() {
    local dir=$1 port=$2 nodes=$3 i
    shift 3
    prepare "$dir" "$port" "$@"
    dir=$(cd "$dir" && pwd)
    trap 'trap - INT TERM EXIT; kill $(jobs -p) 2>/dev/null; wait; exit 0' INT TERM EXIT
    "$0" namenode "$dir" 2>"$dir/log/namenode" &
    for ((i = 0; i < nodes; i++)); do "$0" datanode "$dir" "$i" 2>"$dir/log/datanode$i" & done
    echo "NameNode at $host:$port, $nodes DataNodes; logs in $dir/log. Ctrl-C ends them."
    wait
}

[ $# -gt 0 ] || fail "expected fetch, prepare, pair, namenode, datanode, client or up; see the head of this file"
case $1 in
fetch | prepare | pair | namenode | datanode | client | up) "$@" ;;
*) fail "expected fetch, prepare, pair, namenode, datanode, client or up, got $1" ;;
esac
