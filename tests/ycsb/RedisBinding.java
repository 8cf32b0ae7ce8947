import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;

import redis.clients.jedis.Jedis;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * Redis under YCSB's client. As in its own binding, which no package registry
 * has, a record is a hash, and all keys are in a sorted set by a hash of them,
 * for scans. One connection for each of the client's threads.
 */
public class RedisBinding extends DB {
  private static final String INDEX = "_indices";
  private Jedis redis;

  @Override
  public void init() {
    Properties p = getProperties();
    int port = Integer.parseInt(p.getProperty("redis.port", "6379"));
    redis = new Jedis(p.getProperty("redis.host", "127.0.0.1"), port);
    redis.connect();
  }

  @Override
  public void cleanup() {
    redis.close();
  }

  private static double score(String key) {
    return key.hashCode();
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    if (fields == null) {
      StringByteIterator.putAllAsByteIterators(result, redis.hgetAll(key));
    } else {
      String[] names = fields.toArray(new String[0]);
      Iterator<String> values = redis.hmget(key, names).iterator();
      for (String name : names) {
        String value = values.next();
        if (value != null) {
          result.put(name, new StringByteIterator(value));
        }
      }
    }
    return result.isEmpty() ? Status.ERROR : Status.OK;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    boolean ok = redis.hmset(key, StringByteIterator.getStringMap(values)).equals("OK");
    redis.zadd(INDEX, score(key), key);
    return ok ? Status.OK : Status.ERROR;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    boolean ok = redis.hmset(key, StringByteIterator.getStringMap(values)).equals("OK");
    return ok ? Status.OK : Status.ERROR;
  }

  @Override
  public Status delete(String table, String key) {
    boolean gone = redis.del(key) == 1 & redis.zrem(INDEX, key) == 1;
    return gone ? Status.OK : Status.ERROR;
  }

  @Override
  public Status scan(
      String table, String start, int count, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    for (String key : redis.zrangeByScore(INDEX, score(start), Double.POSITIVE_INFINITY, 0, count)) {
      HashMap<String, ByteIterator> values = new HashMap<>();
      if (read(table, key, fields, values) != Status.OK) {
        return Status.ERROR;
      }
      result.add(values);
    }
    return result.isEmpty() ? Status.ERROR : Status.OK;
  }
}
